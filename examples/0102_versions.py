"""Do all parties run the same code?

What:  compares versions, and the source of this package, on client, scheduler and
       workers; then provokes the four costs of a difference, cheapest first.
Why:   a cluster is several installations. What travels between them is pickled, and a
       pickle names the modules that it needs but does not contain them.
Needs: any cluster; runs a few tiny tasks, some of which fail on purpose (the scheduler
       and the workers log that); leaves nothing behind.
Run:   make run EXAMPLE=0102_versions
"""

import contextlib
import copy
import hashlib
import importlib.util
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import cloudpickle
import distributed.versions
import numpy as np
from distributed import Client

from dask_cluster_lab import Lesson, connect, run

EXTRA = ["xarray", "zarr", "dask-cluster-lab"]  # Dask has to be asked for these
PACKAGES = ["python", "dask", "distributed", "numpy", "pandas", "cloudpickle"]
PACKAGES += ["msgpack", "toolz", "tornado", *EXTRA]

SURVEY_TOOLS = """
class Sounding:
    def __init__(self, fathoms):
        self.fathoms = fathoms

def metres(fathoms):
    return fathoms * 1.8288
"""


def in_metres(fathoms: float) -> float:
    """Convert with a module that is imported where this runs."""
    import survey_tools

    return survey_tools.metres(fathoms)


def fathoms_of(sounding: Any) -> float:
    """Read one attribute; the work is to get the object here at all."""
    return sounding.fathoms


def can_import(name: str) -> bool:
    """Whether the process that runs this finds a module of that name."""
    return importlib.util.find_spec(name) is not None


def source_digest() -> str:
    """SHA-256 of this package's source files, as installed where this runs."""
    package = importlib.util.find_spec("dask_cluster_lab")
    if package is None or package.origin is None:
        return "not installed"
    files = sorted(Path(package.origin).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def one_more() -> str:
    """Type and value of a float32 counter that stands at 2**24, plus one.

    ``np.float32(3) + 3.`` "now returns a float32 when it previously returned a
    float64", says the NumPy 2.0 migration guide; NEP 50 is the reason. No float32 is
    2**24 + 1.
    """
    total = np.float32(2**24) + 1.0
    return f"{total.dtype} {total:.1f}"


def require_same_versions(client: Client) -> None:
    """Raise unless all parties agree: the first thing that a service should do.

    ``check=True`` only warns (distributed 2026.8.0), so the warning is made an error.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Mismatched versions")
        client.get_versions(check=True, packages=EXTRA)


def main() -> None:
    """Tell the story."""
    with connect() as session, Lesson(session) as lesson:
        client = session.client

        def connect_again() -> str:
            with Client(session.address, timeout=10, set_as_default=False) as second:
                return second.status

        lesson.section("One table for all parties")
        report: Any = client.get_versions(packages=EXTRA)
        rows = version_rows(report)
        lesson.table(["package", "client", "scheduler", "workers"], rows)
        if mixed := mixed_rows(report):
            lesson.table(["MIXED", "version", "worker"], mixed)
        different = [package for package, *found in rows if len(set(found)) > 1]
        lesson.check(
            "all parties report the same versions",
            not different,
            f"{len(rows) - len(different)} of {len(rows)} packages agree "
            f"in {2 + len(report['workers'])} processes {' '.join(different)}".rstrip(),
            needs="processes",
        )
        digests = [source_digest(), client.run_on_scheduler(source_digest)]
        digests += client.run(source_digest).values()
        lesson.check(
            "and they run the same source of this package, which no version promises",
            len(set(digests)) == 1,
            f"{digests.count(digests[0])} of {len(digests)} processes have the client's"
            + ("" if len(set(digests)) == 1 else "; 'make up' brings it to the rest"),
            needs="containers",
        )

        lesson.section("What Dask compares by itself, whenever a client connects")
        unasked: Any = client.get_versions()
        compared = sorted(unasked["client"]["packages"])
        print(textwrap.fill(", ".join(compared), 80))
        _, caught = mismatches(connect_again)
        lesson.check(
            "connecting raised no VersionMismatchWarning",
            not caught,
            f"{len(caught)} warnings at a second connection",
            needs="processes",
        )
        lesson.check(
            "xarray, zarr and your own packages are not among them: name them yourself",
            not set(EXTRA) & set(compared),
            f"{len(set(EXTRA) & set(compared))} of {len(EXTRA)} are compared unasked",
        )

        lesson.section("Cost 1: a warning, if somebody reads it")
        print("Let this client report numpy 1.26.4 and connect again:")
        with reporting(unasked["client"], "numpy", "1.26.4"):
            status, caught = mismatches(connect_again)
        shown = [f"{w.category.__name__}: {w.message}" for w in caught]
        if lesson.can("processes"):
            print(textwrap.indent("\n".join(shown), "  "))
        else:
            print("  (the scheduler is this very process, and reports it as well)")
        lesson.check(
            "a client with another numpy is warned, and let in",
            [w.category for w in caught]
            == [distributed.versions.VersionMismatchWarning]
            and status == "running",
            f"{len(caught)} warning; the client was {status}",
            needs="processes",
        )
        print("Let it report xarray 2024.1.0 and ask with get_versions(check=True):")
        with reporting(report["client"], "xarray", "2024.1.0"):
            _, caught = mismatches(
                lambda: client.get_versions(check=True, packages=EXTRA)
            )
            refused = error_of(lambda: require_same_versions(client))
        accepted = error_of(lambda: require_same_versions(client))
        lesson.check(
            "check=True only warns, although its docstring says 'raise ValueError'; a "
            "service should refuse to start, as this lesson's require_same_versions()",
            "raise ValueError" in str(Client.get_versions.__doc__)
            and len(caught) == 1
            and refused is not None
            and accepted is None,
            f"{len(caught)} warning against an error ({type(refused).__name__}); with "
            f"the true report it raised {accepted}",
            needs="processes",
        )
        drifted = copy.deepcopy(report)
        drifted["workers"][min(drifted["workers"])]["packages"]["xarray"] = "2024.1.0"
        text = distributed.versions.error_message(
            drifted["scheduler"], drifted["workers"], drifted["client"]
        )["warning"]
        if mixed := mixed_rows(drifted):
            print("Let one worker report it. The table would say MIXED, and who:")
            lesson.table(["MIXED", "version", "worker"], mixed)
        lesson.check(
            "Dask's own warning has the versions, but not who has which",
            "2024.1.0" in text and not any(a in text for a in drifted["workers"]),
            f"{len(mixed)} addresses in the table, "
            f"{sum(a in text for a in drifted['workers'])} in the warning",
            needs="two workers",
        )

        with module_of_the_client("survey_tools", SURVEY_TOOLS) as survey_tools:
            lesson.section("Cost 2: a module that only the client has")
            print(
                "survey_tools.py was just written to a folder of this machine. Submit"
            )
            print("a function that imports it. The traceback ends with:")
            found = [can_import("survey_tools")]
            found += [client.run_on_scheduler(can_import, "survey_tools")]
            found += client.run(can_import, "survey_tools").values()
            error = client.submit(in_metres, 10.0, pure=False).exception()
            lines = traceback.format_exception(error) if error else ["(it worked)"]
            print(textwrap.indent("".join(lines[-2:]).rstrip(), "  "))
            lesson.check(
                "the useful lines are the last: the module, and the function's frame",
                isinstance(error, ModuleNotFoundError)
                and passed_through(error)[-1] == in_metres.__name__
                and found.index(True) == 0
                and sum(found) == 1,
                f"{error}, in {' > '.join(passed_through(error)[-1:])}; "
                f"{sum(found)} of {len(found)} processes can import it",
                needs="processes",
            )

            lesson.section("Cost 3: a class that only the client can import")
            print("A pickled object is the name of its class and its attributes.")
            sounding = survey_tools.Sounding(10.0)
            error = client.submit(fathoms_of, sounding, pure=False).exception()
            cause = error.__cause__ if error else None
            place = passed_through(cause)
            lesson.check(
                "as an argument it fails on the scheduler, which unpickles the graph; "
                "the useful line is the cause",
                isinstance(cause, ModuleNotFoundError) and place[0] == "update_graph",
                f"{type(error).__name__}, caused by {type(cause).__name__}: {cause} "
                f"in {' > '.join(place)}",
                needs="processes",
            )
            error = error_of(lambda: client.scatter(sounding, hash=False))
            place = [n for n in passed_through(error) if n.startswith("scatter")]
            lesson.check(
                "scattered it passes the scheduler unread, and fails on a worker",
                "survey_tools" in str(error) and place[-1] == "scatter_to_workers",
                f"{type(error).__name__}: {error} in {' > '.join(place)}",
                needs="processes",
            )
            cloudpickle.register_pickle_by_value(survey_tools)
            fathoms = client.submit(fathoms_of, sounding, pure=False).result()
            cloudpickle.unregister_pickle_by_value(survey_tools)
            lesson.check(
                "pickled by value the class travels along, and needs no import there",
                fathoms == sounding.fathoms,
                f"{fathoms} of {sounding.fathoms} fathoms arrived",
                needs="processes",
            )
            print("Functions of a script travel like this by themselves; those of a")
            print("module do not. Install modules on all sides, as our image does.")

        lesson.section("Cost 4: the same call, another answer, and no error")
        print("np.float32(2**24) + 1.0 is a float64 in NumPy 1, a float32 in NumPy 2")
        print("(NEP 50; NumPy 2.0 migration guide). Here it is:")
        here, there = one_more(), client.run(one_more)
        as_numpy_1 = np.float64(np.float32(2**24)) + 1.0
        lesson.table(
            ["where", "type and value"],
            [
                ("this client", here),
                *sorted(there.items()),
                ("NumPy 1's rule, by hand", f"{as_numpy_1.dtype} {as_numpy_1:.1f}"),
            ],
        )
        off = as_numpy_1 - float(here.split()[1])
        lesson.check(
            "client and workers agree; by the other rule a counter would be off by one",
            set(there.values()) == {here} and off == 1,
            f"{here} from {1 + list(there.values()).count(here)} of {1 + len(there)}, "
            f"by hand {off:+.1f}",
            needs="processes",
        )


def version_rows(report: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Package, and its version on client, scheduler and workers (or MIXED)."""
    rows = []
    for package in PACKAGES:
        parties = [report["client"], report["scheduler"], *report["workers"].values()]
        client, scheduler, *workers = (str(p["packages"][package]) for p in parties)
        agreed = workers[0] if len(set(workers)) == 1 else "MIXED"
        rows.append((package, client, scheduler, agreed))
    return rows


def mixed_rows(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Package, version and worker, for each package that is MIXED."""
    return [
        (package, version, address)
        for package, *_, workers in version_rows(report)
        if workers == "MIXED"
        for version, address in sorted(
            (str(worker["packages"][package]), address)
            for address, worker in report["workers"].items()
        )
    ]


def reporting(honest: dict[str, Any], package: str, version: str) -> Any:
    """While this is entered, the client's report names another ``version``."""
    doctored = copy.deepcopy(honest)
    doctored["packages"][package] = version
    return mock.patch.object(
        distributed.versions, "get_versions", return_value=doctored
    )


@contextlib.contextmanager
def module_of_the_client(name: str, source: str) -> Iterator[Any]:
    """A module in a temporary folder of this machine, removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{name}.py").write_text(source)
        sys.path.insert(0, folder)
        try:
            yield importlib.import_module(name)
        finally:
            sys.path.remove(folder)
            sys.modules.pop(name, None)


def mismatches(
    action: Callable[[], Any],
) -> tuple[Any, list[warnings.WarningMessage]]:
    """What ``action`` returned, and what Dask warned about versions meanwhile."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = action()
    return result, [w for w in caught if "Mismatched versions" in str(w.message)]


def error_of(action: Callable[[], object]) -> Exception | None:
    """What ``action`` raised."""
    try:
        action()
    except Exception as error:
        return error
    return None


def passed_through(error: BaseException | None) -> list[str]:
    """The functions that an error passed through, outermost first."""
    trace = error.__traceback__ if error else None
    return [frame.name for frame in traceback.extract_tb(trace)]


if __name__ == "__main__":
    run(main)
