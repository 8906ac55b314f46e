"""The lessons: which there are and what each is about, read from ``examples/``."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from dask_cluster_lab.errors import UsageError

NAME = re.compile(r"\d{4}_[a-z0-9_]+")
FIELDS = ("What", "Why", "Needs", "Run")


def project_root() -> Path:
    """The clone that this runs in: the nearest folder above with ``examples`` in it.

    Raises ``UsageError`` outside of a clone (the lessons are not part of the package).
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "examples").is_dir() and (folder / "compose.yml").is_file():
            return folder
    raise UsageError(
        "this is not a clone of dask-cluster-lab; go into its folder first."
    )


@dataclass(frozen=True)
class LessonFile:
    """One file of ``examples/`` and the parts of its docstring."""

    path: Path
    title: str
    fields: dict[str, str]
    """``What``, ``Why``, ``Needs`` and ``Run``, each in one line."""

    @property
    def name(self) -> str:
        return self.path.stem


def read_lesson(path: Path) -> LessonFile:
    """Parse one lesson's docstring; ``UsageError`` names what it lacks."""
    try:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    except SyntaxError as error:
        raise UsageError(
            f"{path.name}: line {error.lineno} is no Python: {error.msg}."
        ) from None
    title, _, rest = docstring.partition("\n")
    parts = re.split(rf"^({'|'.join(FIELDS)}):\s+", rest, flags=re.MULTILINE)
    fields = {
        name: " ".join(text.split())
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    missing = [name for name in FIELDS if not fields.get(name)]
    if not title or missing:
        raise UsageError(
            f"{path.name}: the docstring lacks {', '.join(missing) or 'a title'}."
        )
    return LessonFile(path, title, fields)


def lessons() -> list[LessonFile]:
    """All lessons in order."""
    files = sorted((project_root() / "examples").glob("*.py"))
    return [read_lesson(path) for path in files if NAME.fullmatch(path.stem)]


def find_lesson(wanted: str) -> LessonFile:
    """The lesson of this name, file name or unique prefix; ``UsageError`` lists all."""
    everything = lessons()
    name = Path(wanted.strip()).name.removesuffix(".py")
    found = [lesson for lesson in everything if lesson.name == name] or [
        lesson for lesson in everything if name and lesson.name.startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    problem = (
        f"{wanted!r} fits {len(found)} lessons" if found else f"no lesson {wanted!r}"
    )
    listing = "\n".join(f"  {lesson.name}" for lesson in found or everything)
    raise UsageError(f"{problem}; give one of these as EXAMPLE:\n{listing}")
