"""Container health check: does the Dask process answer from its event loop?

Run as ``python -m dask_cluster_lab.health PORT``. A bare socket, because this runs
every few seconds in every container: importing an HTTP library would cost more than the
check.
"""

import socket
import sys


def healthy(port: int, seconds: float = 4.0) -> bool:
    """Whether ``GET /health`` on this ``port`` answers 200 within ``seconds``."""
    try:
        with socket.create_connection(
            ("127.0.0.1", port), timeout=seconds
        ) as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return b" 200 " in connection.recv(64)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if healthy(int(sys.argv[1])) else 1)
