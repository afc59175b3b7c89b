"""The header of the PROXY protocol, with which a proxy says whose connection it passes on.

    version 1   "PROXY TCP4 192.0.2.7 192.0.2.1 40000 5672" CR LF, up to 107 bytes
    version 2   signature[12] version+command:octet family:octet length:uint16 addresses more

It does no I/O: `take` is shown bytes that have arrived, and says how many of them belong to the header. What
is behind the header, such as the beginning of a TLS handshake, is left where it is.
"""

from __future__ import annotations

import ipaddress
import struct

LINE_BYTES_MAX = 107
BINARY_BYTES_MAX = (
    4096  # addresses take 36 bytes at most; the rest are the proxy's remarks, which nobody reads
)
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
BINARY_HEAD = struct.Struct(">BBH")  # behind the signature
BINARY_START = len(SIGNATURE) + BINARY_HEAD.size
VERSION_2_LOCAL, VERSION_2_PROXY = 0x20, 0x21
ADDRESSES = {0x11: struct.Struct(">4s4sHH"), 0x21: struct.Struct(">16s16sHH")}  # TCP over IPv4 and IPv6
LINE_START = b"PROXY "
LINE_END = b"\r\n"
LINE_WORDS = 6


class ProxyHeaderError(Exception):
    """The bytes are not a header of the PROXY protocol; the text says why."""


class ProxyHeader:
    """A header that arrives in pieces. Once `is_complete`, `source` and `destination` are known."""

    def __init__(self) -> None:
        self.is_complete = False
        self.source: tuple[str, int] | None = None  # None if the proxy speaks for itself, or does not know
        self.destination: tuple[str, int] | None = None
        self._taken = b""

    def take(self, arrived: bytes) -> int:
        """Return how many of these bytes belong to the header."""
        before = len(self._taken)
        seen = self._taken + arrived
        if SIGNATURE.startswith(seen[: len(SIGNATURE)]):
            end = self._end_of_binary(seen)
        elif LINE_START.startswith(seen[: len(LINE_START)]):
            end = self._end_of_line(seen)
        else:
            raise ProxyHeaderError("it does not begin with a header")
        self._taken = seen[:end]
        return len(self._taken) - before

    def wanted_bytes(self) -> int:
        """How many bytes to look at next."""
        return BINARY_BYTES_MAX - len(self._taken)

    def _end_of_line(self, seen: bytes) -> int:
        end = seen.find(LINE_END, 0, LINE_BYTES_MAX)
        if end >= 0:
            self._read_line(seen[:end])
            return end + len(LINE_END)
        if len(seen) >= LINE_BYTES_MAX:
            raise ProxyHeaderError("the line does not end")
        return len(seen)

    def _read_line(self, line: bytes) -> None:
        words = line.decode("ascii", "replace").split(" ")
        self.is_complete = True
        if words[1:2] == ["UNKNOWN"]:
            return
        if len(words) != LINE_WORDS or words[1] not in {"TCP4", "TCP6"}:
            raise ProxyHeaderError("the line is malformed")
        version = 4 if words[1] == "TCP4" else 6
        self.source = _address(words[2], words[4], version)
        self.destination = _address(words[3], words[5], version)

    def _end_of_binary(self, seen: bytes) -> int:
        if len(seen) < BINARY_START:
            return len(seen)
        command, family, length = BINARY_HEAD.unpack_from(seen, len(SIGNATURE))
        if command not in {VERSION_2_LOCAL, VERSION_2_PROXY}:
            raise ProxyHeaderError(f"unknown version or command {command:#x}")
        end: int = BINARY_START + length
        if end > BINARY_BYTES_MAX:
            raise ProxyHeaderError(f"{end} bytes are too many")
        if len(seen) >= end:
            self.is_complete = True
            if command == VERSION_2_PROXY:
                self._read_addresses(family, seen[BINARY_START:end])
        return min(end, len(seen))

    def _read_addresses(self, family: int, data: bytes) -> None:
        """Families other than TCP's leave source and destination unknown, as the specification says."""
        form = ADDRESSES.get(family)
        if form is None:
            return
        if len(data) < form.size:
            raise ProxyHeaderError("the addresses are cut off")
        source, destination, source_port, destination_port = form.unpack_from(data)
        self.source = str(ipaddress.ip_address(source)), source_port
        self.destination = str(ipaddress.ip_address(destination)), destination_port


def _address(host: str, port: str, version: int) -> tuple[str, int]:
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise ProxyHeaderError(f"{host!r} is not an address") from error
    if address.version != version or "%" in host or not port.isdecimal() or int(port) > 65_535:  # noqa: PLR2004 - the largest port
        raise ProxyHeaderError("address and port do not fit")
    return str(address), int(port)
