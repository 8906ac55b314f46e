"""Container health check: does the process answer, a Dask one from its event loop?

Run as ``python -I -S health.py PORT [PATH]``. A file of its own and a bare socket,
because this runs every few seconds in every container, and whatever it imported would
cost more than the check: a package, an HTTP library, or what
``socket.create_connection`` needs to encode a name.
"""

import socket
import sys


def healthy(port: int, path: str = "/health", *, seconds: float = 4.0) -> bool:
    """Whether ``GET path`` on this ``port`` answers 200 within ``seconds``."""
    try:
        with socket.socket() as connection:
            connection.settimeout(seconds)
            connection.connect(("127.0.0.1", port))
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            return b" 200 " in connection.recv(64)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if healthy(int(sys.argv[1]), *sys.argv[2:3]) else 1)
