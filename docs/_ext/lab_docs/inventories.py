"""Inventories of other projects' documentation, from short lists kept here.

A build must not need a network, so it cannot fetch the inventories of Dask and Python.
``docs/inventories/NAME.txt`` lists what this site links to: the base address on the
first line, then a line for each name, its kind and its page. ``write`` makes of each
the file that Sphinx reads. A link to a name that is not listed fails the build; add
the line.
"""

import zlib
from pathlib import Path


def parse(text: str) -> tuple[str, list[tuple[str, str, str, str]]]:
    """Base address, and name, kind, page and title of every line.

    A line is ``name kind page`` and, for pages (kind ``std:doc``), the title. ``$`` in
    a page stands for the name.
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    entries = []
    for line in lines[1:]:
        name, kind, page, *title = line.split(maxsplit=3)
        if kind.count(":") != 1:
            raise ValueError(f"{line!r}: the kind is no domain:type")
        entries.append((name, kind, page, title[0] if title else "-"))
    return lines[0], entries


def inventory(project: str, entries: list[tuple[str, str, str, str]]) -> bytes:
    """The file that Sphinx reads (its format, version 2)."""
    head = (
        f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    body = "".join(f"{n} {kind} 1 {page} {t}\n" for n, kind, page, t in entries)
    return head.encode() + zlib.compress(body.encode(), 9)


def write(lists: Path, folder: Path) -> dict[str, tuple[str, str]]:
    """Write all inventories into ``folder``; the value of ``intersphinx_mapping``."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for path in sorted(lists.glob("*.txt")):
        address, entries = parse(path.read_text(encoding="utf-8"))
        target = folder / f"{path.stem}.inv"
        target.write_bytes(inventory(path.stem, entries))
        mapping[path.stem] = (address, str(target))
    return mapping
