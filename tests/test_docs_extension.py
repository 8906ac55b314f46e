"""The site's directives show what is in the files, and fail the build if it is not."""

import re
from pathlib import Path

import pytest
from docs_site import DOCS, sphinx

pytest.importorskip("sphinx", reason="Sphinx is missing; 'make test' brings it")

from lab_docs.code import NotInCode, section_code
from lab_docs.inventories import inventory, parse, write
from lab_docs.transcript import NotInTranscript, Transcript, plain, read

HEADER = """\
# lesson: 0101_first
# session: {kind}
# date: 2026-01-02
# versions: python 3.13.0, dask 1.2
# machine: 2 cores, 24 GiB, Linux x86_64

"""
OUTPUT = """\
Some cluster
0101_first: What is here?

Counting the tiles
------------------

  way            messages  median time
  -------------  --------  -----------
  one by one        1,000  320 ms
  all at once           1  7 ms

ok   as many as there are, which is a claim that is so long that it is wrapped:
     6 of 6 tiles, ~1,200 bytes
n/a  another: needs two workers

Summary
-------
ok   as many as there are, which is a claim that is so long that it is wrapped
2 checks: 1 ok, 0 failed, 1 n/a
"""
LESSON = '''"""What is here?

What:  counts.
Why:   to know.
Needs: nothing.
Run:   make run EXAMPLE=0101_first
"""


def tile(number: int) -> int:
    """One tile."""
    return number


def main() -> None:
    with connect() as session, Lesson(session) as lesson:
        client = session.client

        lesson.section("Counting the tiles")
        print("This is told, not shown.")
        # The comment goes with its statement.
        tiles = client.map(tile, range(6))
        lesson.table(["a"], [(1,)])
        n = len(
            tiles,
        )

        lesson.check("six", n == 6, f"{n}")
        if n:
            lesson.check("not empty", True)

        lesson.section(f"And {n} more, of {n + 1}")
        more = client.map(tile, range(7))
'''


@pytest.fixture
def transcript() -> Transcript:
    return Transcript({}, OUTPUT)


@pytest.fixture
def small_site(tmp_path: Path) -> Path:
    """A project with one lesson, and the sources of a site with one page."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "0101_first.py").write_text(LESSON)
    (tmp_path / "Makefile").write_text("up: uv ## Start it\n\nuv:\n\ttrue\n")
    (tmp_path / "compose.yml").write_text(
        "services:\n  scheduler:\n    ports:\n      - 127.0.0.1:${A_PORT:-1234}:5678\n"
    )
    docs = tmp_path / "docs"
    for kind in ("compose", "local"):
        folder = docs / "transcripts" / kind
        folder.mkdir(parents=True)
        (folder / "0101_first.txt").write_text(HEADER.format(kind=kind) + OUTPUT)
    (docs / "diagrams").mkdir()
    (docs / "diagrams" / "box.svg").write_text('<svg viewBox="0 0 1 1"></svg>')
    (docs / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(DOCS / '_ext')!r})\n"
        "extensions = ['lab_docs', 'myst_parser', 'sphinx_design']\n"
        "myst_enable_extensions = ['colon_fence']\nhtml_theme = 'basic'\n"
    )
    return docs


def built(docs: Path, text: str) -> str:
    (docs / "index.md").write_text(text)
    done = sphinx(docs, docs.parent / "html")
    assert done.returncode == 0, done.stderr
    return (docs.parent / "html" / "index.html").read_text()


# Transcripts


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ("one by one -> messages", "1,000"),
        ("all at once -> median time", "7 ms"),
        (r"(\d+ of \d+) tiles", "6 of 6"),
        (r"\d checks", "2 checks"),
        (r"wrapped: (\d+)", "6"),
        (r"^ok +as many.*(~[\d,]+) bytes$", "~1,200"),
    ],
)
def test_value(wanted: str, value: str, transcript: Transcript) -> None:
    assert transcript.value(wanted) == value


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ("one by one -> bytes", "gives nothing"),
        ("two by two -> messages", "gives nothing"),
        (r"(\d+) ms", r"gives 2 values \(320, 7\)"),
        ("no such text", "gives nothing"),
    ],
)
def test_value_that_is_not_there(
    wanted: str, complaint: str, transcript: Transcript
) -> None:
    with pytest.raises(NotInTranscript, match=complaint):
        transcript.value(wanted)


def test_the_same_value_in_two_places_is_one(transcript: Transcript) -> None:
    assert transcript.value(r"claim that is so (\w+)") == "long"


def test_sections(transcript: Transcript) -> None:
    assert list(transcript.sections()) == ["", "Counting the tiles", "Summary"]
    assert transcript.section("Summary").startswith("Summary\n-------\nok ")
    with pytest.raises(NotInTranscript, match="there are: Counting the tiles; Summary"):
        transcript.section("Elsewhere")


def test_real_transcripts_keep_every_character() -> None:
    for path in (DOCS / "transcripts").glob("*/*.txt"):
        found = read(DOCS / "transcripts", path.stem, path.parent.name)
        assert path.read_text(encoding="utf-8").endswith(f"\n\n{found.text}")
        assert found.header["lesson"] == path.stem
        whole = "".join(
            (f"{title}\n{'-' * len(title)}\n" if title else "") + text
            for title, text in found.sections().items()
        )
        assert whole == found.text


def test_a_tilde_is_a_word_in_prose() -> None:
    assert plain("~1,200") == "about 1,200"
    assert plain("1,200") == "1,200"


@pytest.mark.parametrize("kind", ["compose", "remote"])
def test_no_transcript(kind: str, tmp_path: Path) -> None:
    with pytest.raises(NotInTranscript, match=f"no transcript {kind}/0101_first.txt"):
        read(tmp_path, "0101_first", kind)


# Code


def test_section_without_printing_and_checks() -> None:
    assert section_code(LESSON, "Counting the tiles") == (
        "# The comment goes with its statement.\n"
        "tiles = client.map(tile, range(6))\n"
        "n = len(\n    tiles,\n)\n"
        'if n:\n    lesson.check("not empty", True)\n'
    )


def test_section_with_checks() -> None:
    text = section_code(LESSON, "Counting the tiles", keep_checks=True)
    assert 'lesson.check("six", n == 6, f"{n}")\n' in text
    assert "print" not in text
    assert "more" not in text


def test_section_with_a_title_that_is_made_at_run_time() -> None:
    code = section_code(LESSON, "And ... more, of ...")
    assert code == "more = client.map(tile, range(7))\n"


def test_section_that_is_not_there() -> None:
    with pytest.raises(
        NotInCode, match=r"there are: Counting the tiles; And \.\.\. more"
    ):
        section_code(LESSON, "Elsewhere")


# Inventories


def test_inventory_is_what_sphinx_reads() -> None:
    from sphinx.util.inventory import InventoryFile

    text = (
        "https://x.org/en/\n# a comment\n"
        "a.B py:class api.html#$\np std:doc p.html The P\n"
    )
    address, entries = parse(text)
    assert address == "https://x.org/en/"
    loaded = InventoryFile.loads(inventory("x", entries), uri=address)
    assert loaded["py:class", "a.B"].uri == "https://x.org/en/api.html#a.B"
    assert loaded["std:doc", "p"].display_name == "The P"


def test_inventory_with_a_bad_line() -> None:
    with pytest.raises(ValueError, match="domain:type"):
        parse("https://x.org/\nname class page.html\n")


def test_inventories_of_this_site(tmp_path: Path) -> None:
    mapping = write(DOCS / "inventories", tmp_path)
    assert set(mapping) >= {"dask", "distributed", "python"}
    for address, path in mapping.values():
        assert address.startswith("https://")
        assert address.endswith("/")
        assert Path(path).is_file()


# Directives, in a build


def test_directives_and_roles(small_site: Path) -> None:
    page = built(
        small_site,
        "# Page\n\n```{lesson-head} 0101_first\n```\n\n```{lesson-table}\n```\n\n"
        "```{section} 0101_first: Counting the tiles\n```\n\n"
        "```{transcripts} 0101_first\n```\n\n"
        "```{make-targets}\n```\n\n```{ports}\n```\n\n"
        "```{diagram} box\n:alt: A <box>\n```\n\n"
        "It took {measured}`0101_first:local:all at once -> median time`.\n",
    )
    assert "make run EXAMPLE=0101_first" in re.sub(r"<[^>]+>", "", page)
    assert "The lesson counts. It needs nothing." in page
    assert "tiles</span> <span" in page
    assert page.count('data-sync-id="compose"') == 1
    assert page.count("2 checks: 1 ok, 0 failed, 1 n/a") == 2
    assert "Recorded 2026-01-02, Fallback, 2 cores" in page
    assert "<td><p>Start it</p></td>" in page
    assert "<td><p>127.0.0.1:1234</p></td>" in page
    assert 'aria-label="A &lt;box&gt;"' in page
    origin = 'title="0101_first, Fallback, 2026-01-02">7 ms</abbr>'
    assert origin in page


def test_a_change_of_the_lesson_shows_without_a_change_of_the_page(
    small_site: Path,
) -> None:
    text = "# Page\n\n```{section} 0101_first: Counting the tiles\n```\n"
    assert "range" in built(small_site, text)
    lesson = small_site.parent / "examples" / "0101_first.py"
    lesson.write_text(lesson.read_text().replace("range(6)", "other_tiles"))
    assert "other_tiles" in built(small_site, text)


FAULTS = {
    "```{transcripts} 0909_none\n```": "no transcript compose/0909_none.txt",
    "```{transcripts} 0101_first\n:section: No\n```": "transcripts: no section 'No'",
    "```{section} 0101_first: No\n```": "section: no section 'No'",
    "```{section} 0909_none: No\n```": "No such file",
    "{measured}`0101_first:compose:no such`": "'no such' gives nothing",
    "```{diagram} none\n:alt: x\n```": "none.svg or its :alt: is missing",
    "```{diagram} box\n```": "box.svg or its :alt: is missing",
}


def test_what_is_not_there_fails_the_build(small_site: Path) -> None:
    text = "\n\n".join(["# Page", *FAULTS])
    (small_site / "index.md").write_text(text)
    done = sphinx(small_site, small_site.parent / "html")
    assert done.returncode != 0
    assert [c for c in FAULTS.values() if c not in done.stderr] == []
    assert done.stderr.count("WARNING") == len(FAULTS)
