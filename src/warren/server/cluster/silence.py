"""Connections to other machines, of which a machine may go without a word: it lost its power, or its network.

TCP alone takes minutes to notice that, sends again ever more rarely, and never notices anything where nothing
is sent. So after a cut, nodes would not find each other for as long as the cut was.
"""

from __future__ import annotations

import socket

GONE_SECONDS = 5  # without a word from the other machine's kernel, although it was asked for one
ASK_SECONDS = 2  # between questions, while nothing is sent


def notice_silence(connection: socket.socket) -> None:
    """Have a connection end when the machine at its other end is gone. A process that is only slow does not
    end it: its kernel answers.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, ASK_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_SECONDS * 1000)
