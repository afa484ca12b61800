#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program while a TCP port is held for it. The variable HELD_PORT of its environment is the port number.

    held_port.py PROGRAM [ARGUMENTS]

The kernel chooses the port, and assigns it to no other process. Connections to it are refused until a server of
the test listens there; the server has to permit address reuse.
"""

import os
import socket
import sys


def hold_port():
    """Returns a socket that holds a port as long as it is open, and the port."""
    held = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if held.family == socket.AF_INET6:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    held.bind(("", 0))
    return held, held.getsockname()[1]


def main():
    held, port = hold_port()
    # The program inherits the socket, so that it holds the port until it exits.
    held.set_inheritable(True)
    os.environ["HELD_PORT"] = str(port)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
