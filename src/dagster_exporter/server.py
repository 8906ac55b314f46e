"""Serves the state over HTTP, from threads of its own: no request waits for Dagster."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from dagster_exporter import __version__
from dagster_exporter.state import State

TEXT = "text/plain; version=0.0.4; charset=utf-8"

LANDING_PAGE = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Dagster exporter</title></head>
<body>
<h1>Dagster exporter {__version__}</h1>
<ul>
<li><a href="/metrics">/metrics</a>: what Prometheus scrapes</li>
<li><a href="/healthz">/healthz</a>: the process is alive</li>
<li><a href="/readyz">/readyz</a>: every collector has had a good poll</li>
</ul>
</body>
</html>
"""


class Server(ThreadingHTTPServer):
    """Listens at once; answers from ``serve_in_background`` to ``stop``."""

    daemon_threads = True

    def __init__(self, listen: tuple[str, int], state: State) -> None:
        self.state = state
        if ":" in listen[0]:
            self.address_family = socket.AF_INET6
        super().__init__(listen, _Handler)
        self._thread = threading.Thread(target=self.serve_forever, name="http")

    def server_bind(self) -> None:
        """Bind, without asking the network for this machine's name first."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.port

    @property
    def port(self) -> int:
        """The port, also where the settings left it to the system with 0."""
        return int(self.server_address[1])

    def serve_in_background(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more, and give the port back."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the other end hung up, and that is its own affair."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10  # a client that says nothing does not keep its thread

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, TEXT, self.server.state.text())
            case "/healthz":
                self._answer_json(200, {"status": "healthy"})
            case "/readyz":
                missing = self.server.state.waiting_for()
                if missing:
                    self._answer_json(
                        503, {"status": "not ready", "no good poll yet": missing}
                    )
                else:
                    self._answer_json(200, {"status": "ready"})
            case "/":
                self._answer(200, "text/html; charset=utf-8", LANDING_PAGE.encode())
            case _:
                self._answer_json(404, {"status": "not found"})

    do_HEAD = do_GET

    def _answer_json(self, status: int, content: dict[str, object]) -> None:
        self._answer(status, "application/json", json.dumps(content).encode() + b"\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No line for each scrape."""

    def version_string(self) -> str:
        return f"dagster-exporter/{__version__}"
