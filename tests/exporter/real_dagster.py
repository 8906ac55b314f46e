"""A real Dagster as local processes: webserver, daemon, and a helper in its storage."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Protocol

from dask_cluster_lab.orchestrator.processes import (
    LocalDagster,
    dagster_project,
    wait_until,
)

HARBOUR = """
import dagster as dg


@dg.op
def nothing():
    pass


def job(name):
    @dg.job(name=name, executor_def=dg.in_process_executor)
    def made():
        nothing()

    return made


defs = dg.Definitions(jobs=[job(name) for name in {jobs!r}])
"""
"""A second code location, for tests to break, repair and change."""


class LeaveOut(Protocol):
    """The test suite's helper: skips, or fails where nothing may be left out."""

    def __call__(self, reason: str, remedy: str) -> None: ...


def install(leave_out: LeaveOut) -> None:
    """Bring the programs of the pinned Dagster."""
    uv = os.environ.get("UV") or shutil.which("uv")
    own = Path(__file__).parents[2] / ".uv" / "bin" / "uv"
    if not uv and own.exists():
        uv = str(own)
    if not uv:
        leave_out("uv is not to be found", "install uv, which brings Dagster")
    project = dagster_project()
    command = [str(uv), "sync", "--frozen", "--quiet", "--project", str(project)]
    environ = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        leave_out("Dagster cannot be installed", f"run 'uv sync' in {project.name}")


class RealDagster(LocalDagster):
    """One instance in ``folder``, with a second code location that only the web knows.

    Beside what lessons do with it: a helper that writes into its storage.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.harbour = folder / "harbour.py"
        self.write_harbour("moor", "dredge")
        self._side: subprocess.Popen[str] | None = None

    def workspace(self, name: str) -> tuple[str, str]:
        """Files of code, which each of the two loads for itself, and can load anew."""
        places = {"lab": dagster_project() / "sample_jobs.py"}
        if name == "web":
            places["harbour"] = self.harbour
        path = self.folder / f"{name}.yaml"
        files = [
            {"python_file": {"relative_path": str(file), "location_name": location}}
            for location, file in places.items()
        ]
        path.write_text(json.dumps({"load_from": files}))
        return "--workspace", str(path)

    def write_harbour(self, *jobs: str) -> None:
        """Define the second location's jobs."""
        self.harbour.write_text(HARBOUR.format(jobs=list(jobs)))

    def start(self) -> None:
        """Start everything, webserver and daemon at once; return when it works."""
        self.make_storage()
        script = str(Path(__file__).parent / "dagster_side.py")
        self._side = self.run("python", script, str(self.home), talks=True)
        self._helper(hello="are you there?")
        self.start_daemon()
        self.start_web()
        self._wait_for(self.daemon, self.dagster.daemons_are_well, "Dagster's daemon")

    def _helper(self, **command: Any) -> Any:
        assert self._side
        assert self._side.stdin
        assert self._side.stdout
        print(json.dumps(command), file=self._side.stdin, flush=True)
        return json.loads(self._side.stdout.readline())

    def make(
        self, status: str, job: str = "moor", location: str = "harbour", times: int = 1
    ) -> list[str]:
        """Put runs in this status into Dagster's storage; their ids."""
        ids: list[str] = self._helper(
            make=status, job=job, location=location, times=times
        )
        return ids

    def tag(self, run_id: str) -> None:
        """Give a run another tag."""
        self._helper(tag=run_id)

    def delete(self, run_id: str) -> None:
        """Delete a run."""
        self._helper(delete=run_id)

    def reload(self, location: str) -> None:
        """Load a code location anew."""
        query = (
            "mutation($name: String!) { reloadRepositoryLocation("
            "repositoryLocationName: $name) { __typename } }"
        )
        self.dagster.ask(query, name=location)

    def turn(self, on: bool, schedule: str) -> None:
        """Turn a schedule of the lab on or off; return when Dagster says that it is."""
        self._turn(on, "schedule", schedule, stop="stopRunningSchedule")

    def turn_sensor(self, on: bool, sensor: str) -> None:
        """Turn a sensor of the lab on or off; return when Dagster says that it is."""
        self._turn(on, "sensor", sensor, stop="stopSensor")

    def _turn(self, on: bool, kind: str, name: str, stop: str) -> None:
        """The same for both kinds, whose mutations have other names."""
        type_ = kind.capitalize()
        selector = {
            "repositoryLocationName": "lab",
            "repositoryName": "__repository__",
            f"{kind}Name": name,
        }
        look = (
            f"query($s: {type_}Selector!) {{ {kind}OrError({kind}Selector: $s)"
            f" {{ ... on {type_} {{ {kind}State {{ id status }} }} }} }}"
        )
        start = (
            f"mutation($s: {type_}Selector!) {{"
            f" start{type_}({kind}Selector: $s) {{ __typename }} }}"
        )
        end = f"mutation($id: String!) {{ {stop}(id: $id) {{ __typename }} }}"

        def turned() -> bool:
            """Busy storage can refuse, which is no error of the request."""
            answer = self.dagster.ask(look, s=selector)
            state = answer[f"{kind}OrError"][f"{kind}State"]
            if state["status"] == ("RUNNING" if on else "STOPPED"):
                return True
            if on:
                self.dagster.ask(start, s=selector)
            else:
                self.dagster.ask(end, id=state["id"])
            return False

        wait_until(turned, f"the {kind} {name}")
