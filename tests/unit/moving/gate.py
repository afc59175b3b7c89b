"""A path to a broker that a test can shut and open again: so a broker goes away and comes back."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from typing import Self

from warren.client.uri import Uri

RECEIVE_BYTES = 65_536


class Gate:
    def __init__(self, target: Uri) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []  # of all connections
        self._threads: list[threading.Thread] = []
        self.uri = replace(target, port=self._server.getsockname()[1])

    def __enter__(self) -> Self:
        self._run(self._accept, self._server)
        return self

    def __exit__(self, *exception: object) -> None:
        self.shut()
        for thread in self._threads:
            thread.join()

    def shut(self) -> None:
        """Drop all connections, and take no new ones."""
        for end in (self._server, *self._ends):
            with contextlib.suppress(OSError):  # it is closed already
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()

    def open(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.uri.port))
        self._run(self._accept, self._server)

    def _run(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the gate is shut
            while True:
                client, _address = server.accept()
                broker = socket.create_connection((self._target.host, self._target.port))
                self._ends += [client, broker]
                self._run(self._copy, client, broker)
                self._run(self._copy, broker, client)

    def _copy(self, source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the gate is shut
            while data := source.recv(RECEIVE_BYTES):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
