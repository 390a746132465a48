"""`relay.py ADDRESS PORT`: standard input and output as a connection. QEMU runs it for each connection that it forwards."""

import os
import select
import socket
import sys


def relay(connection):
    """Carries bytes both ways until the server has said all."""
    server = connection.fileno()
    sources = {0, server}
    while server in sources:
        for source in select.select(list(sources), [], [])[0]:
            data = os.read(source, 65536)
            if not data:
                sources.remove(source)
                if source == 0:
                    connection.shutdown(socket.SHUT_WR)
            elif source == 0:
                connection.sendall(data)
            while data and source == server:
                data = data[os.write(1, data):]


if __name__ == "__main__":
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
        relay(peer)
