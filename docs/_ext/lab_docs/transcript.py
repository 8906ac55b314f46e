"""A transcript as data: its header, its sections, and single values out of it."""

import re
from dataclasses import dataclass
from pathlib import Path

KINDS = {"compose": "Compose cluster", "local": "Fallback"}


class NotInTranscript(Exception):
    """What a page quotes is not there, or stands there with several values."""


@dataclass(frozen=True)
class Transcript:
    """One recorded run of a lesson."""

    header: dict[str, str]
    text: str
    """The output to the letter."""

    @property
    def caption(self) -> str:
        """When, where and on what it was recorded."""
        place = KINDS[self.header["session"]]
        return (
            f"Recorded {self.header['date']}, {place}, {self.header['machine']}; "
            f"{self.header['versions']}."
        )

    def sections(self) -> dict[str, str]:
        """The text of each section by its title; what comes before has title ``""``."""
        parts = re.split(r"^(\S.*)\n-{3,}\n", self.text, flags=re.MULTILINE)
        return dict(zip(["", *parts[1::2]], parts[::2], strict=True))

    def section(self, title: str) -> str:
        """One section with its title. ``NotInTranscript`` lists those there are."""
        sections = self.sections()
        if title not in sections:
            known = "; ".join(name for name in sections if name)
            raise NotInTranscript(f"no section {title!r}; there are: {known}")
        return f"{title}\n{'-' * len(title)}\n{sections[title]}".rstrip() + "\n"

    def unwrapped(self) -> str:
        """The text with wrapped checks joined into one line each."""
        return re.sub(r"\n {5}(?=\S)", " ", self.text)

    def tables(self) -> list[tuple[list[str], list[list[str]]]]:
        """Headers and rows of every table, in order."""
        found = []
        lines = self.text.splitlines()
        for i, line in enumerate(lines):
            if i and re.fullmatch(r"  -+(  -+)*", line):
                headers = _cells(lines[i - 1])
                rows = []
                for row in lines[i + 1 :]:
                    if not row.strip():
                        break
                    rows.append(_cells(row))
                found.append((headers, rows))
        return found

    def value(self, wanted: str) -> str:
        """One value: a cell (``row -> column``), or a pattern's first group.

        The row is named by its first cell. A pattern is searched in the text with
        wrapped lines joined; without a group its whole match counts. Raises
        ``NotInTranscript`` unless exactly one value is found; the same value in
        several places is one.
        """
        row_name, arrow, column = wanted.partition(" -> ")
        if arrow:
            found = {
                row[headers.index(column)]
                for headers, rows in self.tables()
                for row in rows
                if column in headers and row[0] == row_name and len(row) == len(headers)
            }
        else:
            matches = re.finditer(wanted, self.unwrapped(), flags=re.MULTILINE)
            found = {m[1] if m.re.groups else m[0] for m in matches}
        if len(found) != 1:
            many = f"{len(found)} values ({', '.join(sorted(found))})" if found else ""
            raise NotInTranscript(f"{wanted!r} gives {many or 'nothing'}")
        return found.pop()


def read(folder: Path, lesson: str, kind: str) -> Transcript:
    """The transcript of ``lesson`` in a session of this ``kind``."""
    path = folder / kind / f"{lesson}.txt"
    if kind not in KINDS or not path.is_file():
        raise NotInTranscript(f"there is no transcript {kind}/{lesson}.txt")
    head, _, text = path.read_text(encoding="utf-8").partition("\n\n")
    fields = (line.removeprefix("# ").partition(": ") for line in head.splitlines())
    return Transcript({name: value for name, _, value in fields}, text)


def plain(value: str) -> str:
    """A value as prose has it: the tilde of what may vary becomes a word."""
    return f"about {value[1:]}" if value.startswith("~") else value


def _cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())
