"""The list of lessons: found by name, read from docstrings, nothing astray."""

import py_compile
import re
from pathlib import Path

import pytest

from dask_cluster_lab.commands.catalogue import (
    FIELDS,
    NAME,
    find_lesson,
    lessons,
    project_root,
    read_lesson,
)
from dask_cluster_lab.errors import UsageError

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_file())


# The small project


def test_lessons_in_order(project: Path) -> None:
    assert [lesson.name for lesson in lessons()] == [
        "0101_first",
        "0102_second",
        "0201_third",
    ]


def test_what_a_docstring_says(project: Path) -> None:
    lesson = lessons()[0]
    assert lesson.path == project / "examples" / "0101_first.py"
    assert lesson.title == "Title of 0101_first."
    assert lesson.fields == {
        "What": "prints a line.",
        "Why": "to be found.",
        "Needs": "nothing.",
        "Run": "make run EXAMPLE=0101_first",
    }


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("0101_first", "0101_first"),
        ("0101_first.py", "0101_first"),
        ("examples/0101_first.py", "0101_first"),
        ("./examples/0101_first.py", "0101_first"),
        (" 0102 ", "0102_second"),
        ("0102_s", "0102_second"),
        ("02", "0201_third"),
        ("0201_third\n", "0201_third"),
    ],
)
def test_find(wanted: str, name: str, project: Path) -> None:
    assert find_lesson(wanted).name == name


def test_an_exact_name_is_not_ambiguous(project: Path) -> None:
    text = (project / "examples" / "0101_first.py").read_text()
    (project / "examples" / "0101_first_again.py").write_text(text)
    assert find_lesson("0101_first").name == "0101_first"
    with pytest.raises(UsageError) as caught:
        find_lesson("0101")
    assert str(caught.value) == (
        "'0101' fits 2 lessons; give one of these as EXAMPLE:\n"
        "  0101_first\n  0101_first_again"
    )


@pytest.mark.parametrize(
    "wanted",
    [
        "",
        " ",
        "9",
        "first",
        "0101_First",
        "0101_first.txt",
        "..",
        "/",
        "*",
        "0101 first",
    ],
)
def test_no_such_lesson(wanted: str, project: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_lesson(wanted)
    problem = f"no lesson {wanted!r}; give one of these as EXAMPLE"
    if not wanted.strip():
        problem = "EXAMPLE is not set; give one of these"
    assert str(caught.value) == (
        f"{problem}:\n  0101_first\n  0102_second\n  0201_third"
    )
    assert caught.value.exit_status == 2


def test_a_stray_file_is_no_lesson(project: Path) -> None:
    for name in ("helper.py", "0101-dash.py", "101_short.py", "0301_notes.txt"):
        (project / "examples" / name).write_text("not a lesson")
    (project / "examples" / "0301_folder").mkdir()
    assert len(lessons()) == 3


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "the docstring lacks What, Why, Needs, Run"),
        ('"""Only a title."""', "the docstring lacks What, Why, Needs, Run"),
        ('"""T.\n\nWhat: a\nWhy: b\nRun: c\n"""', "the docstring lacks Needs"),
        ('"""T.\n\nWhat: a\nWhy:\nNeeds: b\nRun: c"""', "the docstring lacks Why"),
        ("print('no docstring')", "the docstring lacks What, Why, Needs, Run"),
        ("def broken(:", "line 1 is no Python: invalid syntax"),
    ],
)
def test_a_lesson_that_lacks_something(
    source: str, problem: str, project: Path
) -> None:
    path = project / "examples" / "0301_new.py"
    path.write_text(source)
    with pytest.raises(UsageError) as caught:
        read_lesson(path)
    assert str(caught.value) == f"0301_new.py: {problem}."


def test_a_field_is_only_at_the_start_of_a_line(project: Path) -> None:
    path = project / "examples" / "0301_new.py"
    path.write_text(
        '"""Title.\n\nWhat:  asks What: and Why: in one line\n'
        '       and goes on.\nWhy:   b\nNeeds: c\nRun:   d\n"""\n'
    )
    assert read_lesson(path).fields["What"] == (
        "asks What: and Why: in one line and goes on."
    )


# Where the project is


def test_the_project_is_found_from_a_folder_below(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = project / "docs" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert project_root() == project
    assert len(lessons()) == 3


@pytest.mark.parametrize("missing", ["examples", "compose.yml"])
def test_outside_of_a_clone(
    missing: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / missing).rename(project / "elsewhere")
    with pytest.raises(UsageError) as caught:
        lessons()
    assert str(caught.value) == (
        "this is not a clone of dask-cluster-lab; go into its folder first."
    )


# The real lessons


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_file_in_examples_is_a_lesson(path: Path, tmp_path: Path) -> None:
    assert path.suffix == ".py"
    assert NAME.fullmatch(path.stem), f"{path.name} is not named like a lesson"
    lesson = read_lesson(path)
    assert list(lesson.fields) == list(FIELDS)
    assert lesson.title.endswith((".", "?"))
    assert lesson.fields["Run"] == f"make run EXAMPLE={lesson.name}"
    py_compile.compile(str(path), cfile=str(tmp_path / "compiled"), doraise=True)
    source = path.read_text(encoding="utf-8")
    assert re.search(r'^if __name__ == "__main__":\n    run\(main\)$', source, re.M)


def test_examples_holds_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert [lesson.path for lesson in lessons()] == EXAMPLES
    folders = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert folders <= {"__pycache__"}


def test_numbers_are_unique() -> None:
    numbers = [path.name[:4] for path in EXAMPLES]
    assert len(numbers) == len(set(numbers))
    assert len(numbers) >= 2
