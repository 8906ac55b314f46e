"""Which code locations load, and which jobs they have."""

from dagster_exporter import metrics
from dagster_exporter.answers import Asks, Node, child, children, member, text
from dagster_exporter.metrics import Family
from dagster_exporter.roster import Roster


class CodeLocations:
    """Keeps the roster of jobs that the other collectors use."""

    name = "code_location_status"

    def __init__(self, client: Asks, roster: Roster) -> None:
        self._client = client
        self._roster = roster

    async def poll(self) -> list[Family]:
        """One request."""
        answer = await self._client.ask("code_locations")
        workspace = member(answer, "workspaceOrError", "Workspace")
        loaded: dict[str, frozenset[str]] = {}
        broken = set()
        loading = set()
        for entry in children(workspace, "locationEntries"):
            name = text(entry, "name")
            # Null while it loads: neither good nor broken, and no time to forget jobs.
            if entry.get("locationOrLoadError", ...) is None:
                loading.add(name)
                continue
            location = child(entry, "locationOrLoadError")
            if text(location, "__typename") == "RepositoryLocation":
                loaded[name] = _jobs(location)
            else:
                broken.add(name)
        self._roster.learn(loaded, frozenset(broken | loading))
        errors = dict.fromkeys(loaded, 0) | dict.fromkeys(broken, 1)
        return [
            metrics.LOAD_ERROR.family(((name,), is_) for name, is_ in errors.items())
        ]


def _jobs(location: Node) -> frozenset[str]:
    repositories = children(location, "repositories")
    return frozenset(
        text(job, "name") for one in repositories for job in children(one, "jobs")
    )
