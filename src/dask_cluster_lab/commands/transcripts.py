"""Transcripts: what a lesson really printed, with where and when, and the comparison.

``docs/transcripts/KIND/LESSON.txt`` is a header of ``# name: value`` lines, an empty
line, and the lesson's output to the letter, but for this machine's host name, which
becomes ``here``. A fresh run is compared after masking:
addresses, process ids, times, rates and whatever else may differ from run to run become
names in angle brackets; all other text and numbers must be the same.
"""

import datetime
import difflib
import os
import platform
import re
import socket
from importlib.metadata import version
from pathlib import Path

from dask_cluster_lab.cluster import Kind
from dask_cluster_lab.commands.catalogue import lessons, project_root
from dask_cluster_lab.commands.runner import Outcome, run_lesson
from dask_cluster_lab.errors import LabError

NO_SCHEDULER = "tcp://127.0.0.1:1"
"""An address where nothing listens, which brings the fallback even beside a cluster."""
KINDS: tuple[Kind, ...] = ("compose", "local")
CLIENT_HOST = "here"
CAPTURE_AGAIN = "if the change is meant, run 'make capture' and commit the transcripts"

_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
MASKS = [
    (r"(?:tcp|tls|inproc)://[\w.:/\[\]-]+", "<address>"),
    (r"Compose cluster '[\w-]+'", "Compose cluster <name>"),
    (r"http://[\d.]+:\d+", "<url>"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b", "<ip>"),
    (r"\b[\w.-]+ {2,}pid \d+", "<host> pid <pid>"),
    (r"\bpid \d+", "pid <pid>"),
    (r"\bdocker start [\w.-]+", "docker start <container>"),
    (r"\b[0-9a-f]{12}\b", "<host>"),
    (r"\b[0-9a-f]{32}\b", "<token>"),
    (r"\bpython( +)\d+\.\d+\.\d+\S*", "python <version>"),
    (r"\b\d+\.\d+\.\d+\.(?:alpha|beta|candidate|final)\.\d+\b", "<version>"),
    (r"/tmp/[\w./-]+", "<path>"),
    (rf"{_NUMBER} (?:ns|us|ms|s)\b", "<time>"),
    (rf"{_NUMBER}x\b", "<ratio>"),
    (rf"{_NUMBER}( tasks| calls)?/s\b", "<rate>"),
    (rf"~{_NUMBER}", "<about>"),
    (r"#+", "#"),
    (r"-{2,}", "--"),
]
"""What may vary, and what stands in its place. A lesson marks any other number that may
vary with a tilde: ``~180 kB``."""


def transcript_path(lesson: str, kind: Kind) -> Path:
    """Where the transcript of ``lesson`` in a session of this ``kind`` stands."""
    return project_root() / "docs" / "transcripts" / kind / f"{lesson}.txt"


def kind_environment(kind: Kind) -> dict[str, str]:
    """The environment in which a lesson finds a session of this kind."""
    return {"DASK_SCHEDULER_ADDRESS": NO_SCHEDULER} if kind == "local" else {}


def header(lesson: str, kind: Kind) -> str:
    """Where and when: lesson, session, date, versions, machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ("dask", "distributed", "numpy", "xarray", "zarr")
    fields = {
        "lesson": lesson,
        "session": kind,
        "date": datetime.date.today().isoformat(),
        "versions": f"python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in packages),
        "machine": f"{os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()} {platform.machine()}",
    }
    return "".join(f"# {name}: {value}\n" for name, value in fields.items())


def body(transcript: str) -> str:
    """The output without the header."""
    return transcript.partition("\n\n")[2]


def capture(kinds: tuple[Kind, ...] = KINDS) -> None:
    """Run every lesson in each kind of session and write the transcripts."""
    from dask_cluster_lab.cluster import connect

    if "compose" in kinds:
        with connect(allow_fallback=False, quiet=True) as session:
            if session.kind != "compose":
                raise LabError(
                    "the transcripts show the Compose cluster; 'make up' starts it."
                )
    for kind in kinds:
        for lesson in lessons():
            outcome = run_lesson(lesson, kind_environment(kind))
            if outcome.status or outcome.stderr:
                raise LabError(
                    f"{lesson.name} ({kind}) ended with {outcome.status}; it was not "
                    f"written:\n{outcome.stdout}{outcome.stderr}"
                )
            if ", in vain)" in outcome.stdout:
                raise LabError(
                    f"{lesson.name} waited in vain, so it was not written; capture "
                    "on a machine that is not busy."
                )
            if kind == "compose" and outcome.score and outcome.score[2]:
                raise LabError(
                    f"{lesson.name} has checks that are n/a, so it was not written; "
                    "'make capture' starts all that they need."
                )
            path = transcript_path(lesson.name, kind)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = header(lesson.name, kind) + "\n" + without_host(outcome.stdout)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(project_root())}", flush=True)
    _remove_strays()


def _remove_strays() -> None:
    names = {lesson.name for lesson in lessons()}
    for path in (project_root() / "docs" / "transcripts").glob("*/*.txt"):
        if path.stem not in names:
            path.unlink()


def without_host(text: str) -> str:
    """``text`` with this machine's host name replaced: it is nobody's business.

    In a table, the columns behind it stay where they were.
    """

    def swap(match: re.Match[str]) -> str:
        if len(match[1]) < 2:
            return CLIENT_HOST + match[1]
        return f"{CLIENT_HOST}  ".ljust(len(match[0]))

    return re.sub(rf"\b{re.escape(socket.gethostname())}\b( *)", swap, text)


def mask(text: str) -> str:
    """``text`` with what may vary masked, wrapped lines joined and spaces collapsed."""
    text = re.sub(r"\n {5}(?=\S)", " ", text)
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    return re.sub(r"[ \t]+", " ", text)


def difference(committed: str, fresh: str) -> str:
    """A unified diff of two outputs after masking; empty if they agree."""
    return "\n".join(
        difflib.unified_diff(
            mask(committed).splitlines(),
            mask(fresh).splitlines(),
            "committed transcript",
            "fresh run",
            lineterm="",
            n=1,
        )
    )


def compare_outcome(outcome: Outcome, kind: Kind) -> str:
    """How a fresh run differs from its committed transcript; empty if it does not."""
    path = transcript_path(outcome.lesson.name, kind)
    if not path.is_file():
        return f"{path.name} ({kind}) has no transcript; {CAPTURE_AGAIN}"
    fresh = without_host(outcome.stdout)
    changed = difference(body(path.read_text(encoding="utf-8")), fresh)
    return f"{changed}\n{CAPTURE_AGAIN}" if changed else ""
