"""Dagster's own word: its GraphQL API, as far as lessons and tests ask it.

The exporter has a client of its own. This one is for whoever checks what that one says.
"""

import json
import urllib.request
from typing import Any

from dask_cluster_lab.errors import LabError
from dask_cluster_lab.metrics.prometheus import NO_ANSWER

SECONDS = 120.0
ACTIVE = ["QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING"]
ENDED = ("SUCCESS", "FAILURE", "CANCELED")


class Dagster:
    """A Dagster whose GraphQL API is at ``endpoint``, with the lab's sample jobs.

    Every method raises ``LabError`` if Dagster does not answer, or not what was asked.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def ask(self, query: str, **variables: Any) -> Any:
        """The data that answers a query."""
        request = urllib.request.Request(
            self.endpoint,
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                answer = json.load(response)
        except NO_ANSWER as error:
            raise LabError(
                f"Dagster at {self.endpoint} does not answer ({error}); "
                "'make up PROFILE=orchestrator' starts it."
            ) from None
        if "errors" in answer:
            raise LabError(f"Dagster refused a question: {answer['errors']}.")
        return answer["data"]

    def launch(
        self,
        job: str,
        config: dict[str, dict[str, Any]] | None = None,
        tags: dict[str, str] | None = None,
    ) -> str:
        """Put a run of one of the lab's jobs into the queue; its id.

        ``config`` is what the run is told, by the name of the op it is for.
        """
        ops = {op: {"config": values} for op, values in (config or {}).items()}
        labels = [{"key": key, "value": value} for key, value in (tags or {}).items()]
        answer = self.ask(
            "mutation($params: ExecutionParams!) {"
            " launchRun(executionParams: $params) {"
            " __typename ... on LaunchRunSuccess { run { runId } } } }",
            params={
                "selector": {
                    "repositoryLocationName": "lab",
                    "repositoryName": "__repository__",
                    "jobName": job,
                },
                "runConfigData": {"ops": ops} if ops else {},
                "executionMetadata": {"tags": labels},
            },
        )["launchRun"]
        if answer["__typename"] != "LaunchRunSuccess":
            raise LabError(f"Dagster did not launch {job!r}: {answer['__typename']}.")
        return str(answer["run"]["runId"])

    def cancel(self, run: str) -> None:
        """Ask for the end of a run."""
        query = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"
        self.ask(query, id=run)

    def status(self, run: str) -> str:
        """The status of a run, as in ``QUEUED`` or ``FAILURE``."""
        query = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
        return str(self.ask(query, id=run)["runOrError"]["status"])

    def active(self, job: str) -> list[str]:
        """The runs of a job that wait or run, the newest first."""
        found = self.ask(
            "query($filter: RunsFilter) { runsOrError(filter: $filter) {"
            " ... on Runs { results { runId } } } }",
            filter={"pipelineName": job, "statuses": ACTIVE},
        )
        return [run["runId"] for run in found["runsOrError"]["results"]]

    def ended(self, *runs: str) -> bool:
        """Whether all of these runs have ended, one way or another."""
        return all(self.status(run) in ENDED for run in runs)

    def count(self, job: str, status: str) -> int:
        """How many runs of a job there are in a status, as Dagster itself counts."""
        found = self.ask(
            "query($filter: RunsFilter) { runsOrError(filter: $filter) {"
            " ... on Runs { count } } }",
            filter={"pipelineName": job, "statuses": [status]},
        )
        return int(found["runsOrError"]["count"])

    def daemons_are_well(self) -> bool:
        """Whether Dagster calls all the daemons healthy that it needs."""
        found = self.ask(
            "{instance{daemonHealth{allDaemonStatuses{required healthy}}}}"
        )["instance"]["daemonHealth"]["allDaemonStatuses"]
        return all(one["healthy"] for one in found if one["required"])

    def is_loaded(self) -> bool:
        """Whether it answers, and has tried to load every code location."""
        try:
            found = self.ask(
                "{workspaceOrError{...on Workspace{locationEntries{loadStatus}}}}"
            )["workspaceOrError"]["locationEntries"]
        except LabError:
            return False
        return all(entry["loadStatus"] == "LOADED" for entry in found)
