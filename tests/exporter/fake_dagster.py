"""A Dagster made of a list of runs: answers the exporter's real queries about them.

It keeps the rules that were seen at a real one: runs come newest creation first, a
cursor is the id of the last run, a cursor that is unknown gives an empty page.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Node = dict[str, Any]

TERMINAL = {"SUCCESS", "FAILURE", "CANCELED"}


def make_run(
    run_id: str,
    status: str = "SUCCESS",
    job: str = "good",
    location: str | None = "lab",
    at: float = 0.0,
    wait: float = 1.0,
    seconds: float = 10.0,
    tags: dict[str, str] | None = None,
) -> Node:
    """A run that ended, or came into its status, at Unix time ``at``."""
    ended = status in TERMINAL
    started = at - seconds if ended else at
    queued = status in ("QUEUED", "NOT_STARTED")
    return {
        "runId": run_id,
        "jobName": job,
        "status": status,
        "creationTime": at if queued else started - wait,
        "startTime": None if queued or status == "STARTING" else started,
        "endTime": at if ended else None,
        "updateTime": at,
        "repositoryOrigin": location and {"repositoryLocationName": location},
        "tags": [{"key": k, "value": v} for k, v in (tags or {}).items()],
    }


class FakeDagster:
    """Its state is its attributes: change them, and ask again."""

    def __init__(self) -> None:
        self.runs: list[Node] = []
        self.locations: dict[str, list[str] | None] = {"lab": ["good", "failing"]}
        """Jobs by location; ``None`` for a location that does not load."""
        self.loading: set[str] = set()
        self.limits = ""
        self.max_runs = 4
        self.schedules: list[Node] = []
        self.sensors: list[Node] = []
        self.daemons: list[Node] = []
        self.pools: list[Node] = []
        self.assets: list[Node] = []
        self.asset_infos: list[Node] = []
        self.materializations: dict[str, list[Node]] = {}
        self.asked: Counter[str] = Counter()
        self.variables: list[Node] = []
        self.change: Callable[[str, Node], Any] = lambda query, answer: answer
        """What a test does to each answer before it is given; may raise."""
        self.before: Callable[[str], None] = lambda query: None
        """What happens just before a question is answered."""

    async def ask(self, query: str, **variables: Any) -> Node:
        """As the exporter's client does."""
        data: Node = self.answer(query, variables)
        return data

    def answer(self, query: str, variables: Node) -> Any:
        """The data for one of the exporter's queries, by its file's name."""
        self.asked[query] += 1
        self.variables.append(variables)
        self.before(query)
        known: Any = getattr(self, f"_{query}")(variables)
        return self.change(query, known)

    def _code_locations(self, _: Node) -> Node:
        return self._workspace(lambda jobs: [{"jobs": [{"name": job} for job in jobs]}])

    def _instigators(self, _: Node) -> Node:
        return self._workspace(
            lambda _: [{"schedules": self.schedules, "sensors": self.sensors}]
        )

    def _workspace(self, repositories: Callable[[list[str]], list[Node]]) -> Node:
        def entry(jobs: list[str] | None) -> Node:
            if jobs is None:
                return {"__typename": "PythonError", "message": "SyntaxError"}
            kind = "RepositoryLocation"
            return {"__typename": kind, "repositories": repositories(jobs)}

        entries = [
            {
                "name": name,
                "loadStatus": "LOADING" if name in self.loading else "LOADED",
                "locationOrLoadError": None if name in self.loading else entry(jobs),
            }
            for name, jobs in self.locations.items()
        ]
        found = {"__typename": "Workspace", "locationEntries": entries}
        return {"workspaceOrError": found}

    def _active_runs(self, variables: Node) -> Node:
        queue = {
            "maxConcurrentRuns": self.max_runs,
            "tagConcurrencyLimitsYaml": self.limits,
        }
        return {
            "instance": {"runQueueConfig": queue},
            **self._completed_runs(variables),
        }

    def _completed_runs(self, variables: Node) -> Node:
        after = variables.get("updatedAfter") or -1
        found = [
            run
            for run in self.runs
            if run["status"] in variables["statuses"] and run["updateTime"] > after
        ]
        found.sort(key=lambda run: -float(run["creationTime"]))
        if cursor := variables.get("cursor"):
            ids = [run["runId"] for run in found]
            found = found[ids.index(cursor) + 1 :] if cursor in ids else []
        found = found[: variables["limit"]]
        return {"runsOrError": {"__typename": "Runs", "results": found}}

    def _daemons(self, _: Node) -> Node:
        return {"instance": {"daemonHealth": {"allDaemonStatuses": self.daemons}}}

    def _op_pools(self, _: Node) -> Node:
        return {"instance": {"concurrencyLimits": self.pools}}

    def _asset_definitions(self, _: Node) -> Node:
        return {"assetNodes": self.assets}

    def _asset_runs(self, variables: Node) -> Node:
        asked = variables["assetKeys"]
        infos = [info for info in self.asset_infos if info["assetKey"] in asked]
        return {"assetsLatestInfo": infos}

    def _asset_materializations(self, variables: Node) -> Node:
        after, before = float(variables["after"]), variables["before"]
        nodes = []
        for key in variables["assetKeys"]:
            events = [
                event
                for event in self.materializations.get("/".join(key["path"]), [])
                if float(event["timestamp"]) > after
                and (before is None or float(event["timestamp"]) < float(before))
            ]
            events.sort(key=lambda event: -float(event["timestamp"]))
            events = events[: variables["limit"]]
            nodes.append({"assetKey": key, "assetMaterializations": events})
        return {"assetsOrError": {"__typename": "AssetConnection", "nodes": nodes}}


@contextmanager
def over_http(fake: FakeDagster) -> Iterator[str]:
    """The same behind HTTP; the address of its GraphQL API."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            question = json.loads(self.rfile.read(length))
            name = re.search(r"query (\w+)", question["query"])
            assert name
            words = re.findall(r"[A-Z][a-z]*", name[1])
            query = "_".join(words).lower()
            data = fake.answer(query, question["variables"])
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/graphql"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
