"""Files under ``reports/``: pages that open offline, their facts, and an index of all.

Each page ``NAME.html`` has a ``NAME.json`` beside it that says what ran, where, with
which versions and when, and holds the run's totals. ``index.html`` lists them.
"""

import datetime
import html
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dask_cluster_lab.cluster import ClusterSession
from dask_cluster_lab.errors import LabError

PACKAGES = ("dask", "distributed", "bokeh")
FETCHING = {"script": "src", "link": "href", "img": "src", "iframe": "src"}
"""Elements for which a browser fetches a file at once, and what names the file."""
OUTSIDE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
STYLED = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s;]+)""")


def reports_folder(lesson: str | Path) -> Path:
    """The folder ``reports/`` beside the one that ``lesson`` (a file) is in.

    Made where it is missing; ``LabError`` if nothing can be written there.
    """
    folder = Path(lesson).resolve().parents[1] / "reports"
    try:
        folder.mkdir(exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise LabError(f"cannot write into {folder}; this lesson saves pages there.")
    return folder


def save_facts(
    page: Path, title: str, session: ClusterSession, totals: Mapping[str, Any]
) -> Path:
    """Write the JSON beside ``page`` and the index of its folder anew; its path."""
    facts = {
        "title": title,
        "page": page.name,
        "session": session.kind,
        "scheduler": session.address,
        "workers": len(session.workers()),
        "when": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
        "bytes": page.stat().st_size,
        "totals": dict(totals),
    }
    beside = page.with_suffix(".json")
    beside.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    write_index(page.parent)
    return beside


def write_index(folder: Path) -> Path:
    """Write ``index.html``: a line for each page of ``folder`` that has its facts."""
    rows = []
    for facts in pages_of(folder):
        link = html.escape(facts["page"])
        totals = "".join(
            f"<div>{html.escape(f'{name}: {_plain(value)}')}</div>"
            for name, value in facts["totals"].items()
        )
        workers = facts["workers"]
        cells = [
            facts["when"][:16].replace("T", " "),
            f"{facts['session']}, {workers} worker{'s' * (workers != 1)}",
            f"{facts['bytes'] / 1e6:.1f} MB",
        ]
        rows.append(
            f'<tr><td><a href="{link}">{html.escape(facts["title"])}</a></td>'
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            + f"<td>{totals}</td></tr>"
        )
    index = folder / "index.html"
    index.write_text(_INDEX.format(rows="\n".join(rows)), encoding="utf-8")
    return index


def pages_of(folder: Path) -> list[dict[str, Any]]:
    """Facts of the pages in ``folder``, by name; files that are not ours are none."""
    found = []
    for beside in sorted(folder.glob("*.json")):
        try:
            facts = json.loads(beside.read_text(encoding="utf-8"))
        except ValueError:
            continue
        page = facts.get("page") if isinstance(facts, dict) else None
        if page and (folder / page).is_file():
            found.append(facts)
    return found


def _plain(value: Any) -> str:
    """A number as people read it; everything else as it is."""
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def tab_titles(page: str) -> list[str]:
    """Titles of the tabs of a Bokeh document, as written in the document itself."""
    return [
        thing["attributes"]["title"]
        for thing in bokeh_objects(page)
        if thing.get("name") == "TabPanel"
    ]


def fetched_from_outside(page: str) -> list[str]:
    """Addresses from which a browser would fetch something when it opens ``page``.

    Those that its HTML and its style sheets name; addresses within scripts are not
    looked at, because most are never used.
    """
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(
            self, tag: str, attrs: list[tuple[str, str | None]]
        ) -> None:
            address = dict(attrs).get(FETCHING.get(tag, ""))
            if address and OUTSIDE.match(address):
                found.append(address)

        def handle_data(self, data: str) -> None:
            if self.lasttag == "style":
                found.extend(STYLED.findall(data))

    Reader().feed(page)
    return found


def bokeh_objects(page: str) -> Iterator[dict[str, Any]]:
    """Every object of the Bokeh documents in ``page``, however deep."""
    texts: list[str] = []

    class Reader(HTMLParser):
        inside = False

        def handle_starttag(
            self, tag: str, attrs: list[tuple[str, str | None]]
        ) -> None:
            self.inside = (
                tag == "script" and dict(attrs).get("type") == "application/json"
            )

        def handle_endtag(self, tag: str) -> None:
            self.inside = False

        def handle_data(self, data: str) -> None:
            if self.inside:
                texts.append(data)

    Reader().feed(page)

    def walk(thing: Any) -> Iterator[dict[str, Any]]:
        if isinstance(thing, dict):
            yield thing
            for value in thing.values():
                yield from walk(value)
        elif isinstance(thing, list):
            for value in thing:
                yield from walk(value)

    for text in texts:
        yield from walk(json.loads(text))


_INDEX = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Reports</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem;
  padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
td, th {{ padding: .4rem 1rem .4rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #8886; }}
</style>
<h1>Reports</h1>
<table>
<tr><th>page</th><th>when</th><th>where</th><th>size</th><th>totals</th></tr>
{rows}
</table>
</html>
"""
