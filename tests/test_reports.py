"""Reports: where they go, the facts beside them, the index, and what a page holds."""

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from dask_cluster_lab.cluster import ClusterSession
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.reports import (
    bokeh_objects,
    fetched_from_outside,
    pages_of,
    reports_folder,
    save_facts,
    tab_titles,
    write_index,
)


class Session:
    """What of a session is written down."""

    kind = "remote"
    address = "tcp://10.0.0.9:8786"

    def __init__(self, workers: int = 3) -> None:
        self.number = workers

    def workers(self) -> list[int]:
        return list(range(self.number))


def save(
    folder: Path, name: str, title: str, totals: dict[str, Any], workers: int = 3
) -> Path:
    page = folder / f"{name}.html"
    page.write_text("<p>a page</p>", encoding="utf-8")
    session: Any = Session(workers)
    typed: ClusterSession = session
    return save_facts(page, title, typed, totals)


def test_the_folder_is_beside_that_of_the_lesson(tmp_path: Path) -> None:
    lesson = tmp_path / "my lab" / "examples" / "0502_x.py"
    lesson.parent.mkdir(parents=True)
    for _ in range(2):  # made, then found
        assert reports_folder(lesson) == tmp_path / "my lab" / "reports"
    assert (tmp_path / "my lab" / "reports").is_dir()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file is in the way")
    with pytest.raises(LabError, match=r"cannot write into .*reports; this lesson"):
        reports_folder(tmp_path / "examples" / "0502_x.py")


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may everything
    with pytest.raises(LabError, match="cannot write into"):
        reports_folder(tmp_path / "examples" / "0502_x.py")


def test_facts_beside_a_page(tmp_path: Path) -> None:
    beside = save(tmp_path, "0502_good", "Good", {"tasks": 21, "seconds": 0.51})
    facts = json.loads(beside.read_text(encoding="utf-8"))
    assert beside == tmp_path / "0502_good.json"
    assert facts["versions"]["distributed"] == version("distributed")
    assert set(facts["versions"]) == {"python", "dask", "distributed", "bokeh"}
    assert len(facts["when"]) == len("2026-11-30T18:00:00+00:00")
    del facts["versions"], facts["when"]
    assert facts == {
        "title": "Good",
        "page": "0502_good.html",
        "session": "remote",
        "scheduler": "tcp://10.0.0.9:8786",
        "workers": 3,
        "bytes": len("<p>a page</p>"),
        "totals": {"tasks": 21, "seconds": 0.51},
    }


def test_the_index_lists_and_links_every_page(tmp_path: Path) -> None:
    save(tmp_path, "b", "Badly <chunked>", {"tasks": 1700, "seconds": 2.3456})
    save(tmp_path, "a", "Good", {"tasks": 21}, workers=1)
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert index.index('<a href="a.html">Good</a>') < index.index(
        '<a href="b.html">Badly &lt;chunked&gt;</a>'
    )
    assert "<div>tasks: 1,700</div><div>seconds: 2.35</div>" in index
    assert "<td>remote, 3 workers</td>" in index
    assert "<td>remote, 1 worker</td>" in index
    assert index.count("<tr>") == 3


def test_a_page_that_was_written_again_is_listed_once(tmp_path: Path) -> None:
    for tasks in (20, 21):
        save(tmp_path, "a", "Good", {"tasks": tasks})
    assert [facts["totals"] for facts in pages_of(tmp_path)] == [{"tasks": 21}]


def test_the_index_passes_over_what_is_not_a_page(tmp_path: Path) -> None:
    save(tmp_path, "gone", "Gone", {})
    (tmp_path / "gone.html").unlink()
    (tmp_path / "bench.json").write_text('{"rows": []}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "broken.json").write_text("{")
    assert pages_of(tmp_path) == []
    assert "<a " not in write_index(tmp_path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (
            "<script src='https://cdn.example/x.js'></script>",
            "https://cdn.example/x.js",
        ),
        ('<SCRIPT SRC="HTTP://cdn.example/x.js">', "HTTP://cdn.example/x.js"),
        ('<script src="//cdn.example/x.js"></script>', "//cdn.example/x.js"),
        ('<link rel="stylesheet" href="http://a/b.css">', "http://a/b.css"),
        ('<img src="https://a/b.png">', "https://a/b.png"),
        ("<style>@import 'https://a/b.css';</style>", "https://a/b.css"),
        ("<style>p { background: url(//a/b.png) }</style>", "//a/b.png"),
        ("<script src='x.js'></script><img src='data:image/png;base64,AA'>", ""),
        ("<script>fetch; let a = 'https://a/b.js'</script>", ""),
        ('<a href="https://dask.org">a link is not fetched</a>', ""),
        ("<p>url(https://a/b.png)</p>", ""),
    ],
)
def test_fetched_from_outside(page: str, found: str) -> None:
    assert fetched_from_outside(page) == ([found] if found else [])


def panel(title: str, child: Any = None) -> dict[str, Any]:
    return {"name": "TabPanel", "attributes": {"title": title, "child": child}}


def page_of(*documents: Any) -> str:
    scripts = (
        f'<script type="application/json">{json.dumps(document)}</script>'
        for document in documents
    )
    return f"<p>TabPanel</p><script>let x = 'Task Stream'</script>{''.join(scripts)}"


def test_tab_titles_come_from_the_document() -> None:
    inner = {"name": "Tabs", "attributes": {"tabs": [panel("Inner")]}}
    document = {"roots": [{"attributes": {"tabs": [panel("Summary", inner)]}}]}
    assert tab_titles(page_of(document, {"x": [panel("Other")]})) == [
        "Summary", "Inner", "Other",
    ]  # fmt: skip
    assert tab_titles(page_of({"name": "Figure"})) == []
    assert tab_titles("<p>no document</p>") == []


def test_bokeh_objects_are_found_however_deep() -> None:
    page = page_of([{"a": [[{"name": "Deep"}]]}])
    assert [thing.get("name") for thing in bokeh_objects(page)] == [None, "Deep"]
