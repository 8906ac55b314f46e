"""A stand-in for Dagster with as many finished runs as wanted: for measuring, only.

``python -m dagster_exporter.stand_in 100000`` prints the address of its GraphQL API.
Its runs are computed and not kept: one ended each second up to now, and another ends
with each second that passes. It knows the exporter's queries and no others.
"""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOBS = [f"survey_{number:02}" for number in range(20)]
ENDS = ("SUCCESS", "FAILURE", "CANCELED")


class StandIn:
    """Answers the exporter's queries about ``finished`` runs, and the later ones."""

    def __init__(self, finished: int) -> None:
        self._finished = finished
        self._first_end = time.time() - finished

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The data for a query, by the name of its operation."""
        location = {
            "__typename": "RepositoryLocation",
            "repositories": [
                {
                    "jobs": [{"name": job} for job in JOBS],
                    "schedules": [],
                    "sensors": [],
                }
            ],
        }
        entry = {"name": "lab", "locationOrLoadError": location}
        workspace = {"__typename": "Workspace", "locationEntries": [entry]}
        return {
            "workspaceOrError": workspace,
            "instance": {
                "runQueueConfig": None,
                "daemonHealth": {"allDaemonStatuses": []},
                "concurrencyLimits": [],
            },
            "assetNodes": [],
            "runsOrError": {
                "__typename": "Runs",
                "results": self._runs(variables) if query == "CompletedRuns" else [],
            },
        }

    def _runs(self, variables: dict[str, Any]) -> list[dict[str, Any]]:
        newest = int(time.time() - self._first_end)
        if cursor := variables["cursor"]:
            newest = int(cursor) - 1
        after = variables["updatedAfter"] or 0.0
        oldest = max(0, int(after - self._first_end) + 1)
        chosen = range(newest, oldest - 1, -1)[: variables["limit"]]
        return [self._run(number) for number in chosen]

    def _run(self, number: int) -> dict[str, Any]:
        ended = self._first_end + number
        return {
            "runId": str(number),
            "jobName": JOBS[number % len(JOBS)],
            "status": ENDS[number % 7 % len(ENDS)],
            "creationTime": ended - 12,
            "startTime": ended - 10,
            "endTime": ended,
            "updateTime": ended,
            "repositoryOrigin": {"repositoryLocationName": "lab"},
        }


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandIn

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = re.findall(r"query (\w+)", question["query"])[0]
        data = self.stand_in.answer(name, question["variables"])
        body = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No line for each request."""


def main() -> None:
    """Serve until ended."""
    _Handler.stand_in = StandIn(int(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/graphql", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
