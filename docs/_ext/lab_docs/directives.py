"""The directives and the role; what they show is found by the other modules."""

import html
import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective, SphinxRole
from sphinx.util.logging import getLogger
from sphinx_design.shared import create_component

from dask_cluster_lab.commands.catalogue import NAME, LessonFile, read_lesson
from lab_docs.code import NotInCode, section_code
from lab_docs.transcript import KINDS, NotInTranscript, plain, read

LOGGER = getLogger(__name__)


class LabDirective(SphinxDirective):
    """What the directives share: where things are, and how a mistake is reported."""

    @property
    def root(self) -> Path:
        return Path(self.env.srcdir).parent

    def depend(self, path: Path) -> Path:
        """Build the page again when ``path`` changes."""
        self.env.note_dependency(str(path))
        return path

    def lesson(self, name: str) -> LessonFile:
        return read_lesson(self.depend(self.root / "examples" / f"{name}.py"))

    def lessons(self) -> list[LessonFile]:
        files = sorted((self.root / "examples").glob("*.py"))
        return [self.lesson(p.stem) for p in files if NAME.fullmatch(p.stem)]

    def wrong(self, problem: Exception | str) -> list[nodes.Node]:
        """Report a mistake; in a strict build that is the end."""
        LOGGER.warning("%s: %s", self.name, problem, location=self.get_location())
        return []

    def table(self, headers: list[str], rows: list[list[str]]) -> list[nodes.Node]:
        lines = [headers, ["---"] * len(headers), *rows]
        return self.parse_text_to_nodes(
            "\n".join(f"| {' | '.join(line)} |" for line in lines)
        )

    def code(self, text: str, language: str) -> nodes.literal_block:
        block = nodes.literal_block(text, text, language=language)
        self.set_source_info(block)
        return block


class Transcripts(LabDirective):
    """A lesson's output on the cluster and on the fallback, or one section of both.

    ``:section:`` is the section's title; where the two differ, both, with `` / ``
    between them. ``:kind:`` shows only one of them, without tabs.
    """

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {
        "section": directives.unchanged_required,
        "kind": lambda value: directives.choice(value, tuple(KINDS)),
    }

    def run(self) -> list[nodes.Node]:
        only = self.options.get("kind")
        kinds = [only] if only else list(KINDS)
        titles = self.options.get("section", "").split(" / ")
        titles = titles * len(kinds) if len(titles) == 1 else titles
        shown: list[list[nodes.Node]] = []
        for kind, title in zip(kinds, titles, strict=True):
            folder = Path(self.env.srcdir) / "transcripts"
            try:
                transcript = read(folder, self.arguments[0], kind)
                text = transcript.section(title) if title else transcript.text
            except NotInTranscript as problem:
                return self.wrong(problem)
            self.depend(folder / kind / f"{self.arguments[0]}.txt")
            caption = nodes.paragraph(
                "", transcript.caption, classes=["transcript-caption"]
            )
            shown.append([self.code(text, "transcript"), caption])
        if only:
            return shown[0]
        tabs = create_component("tab-set", classes=["sd-tab-set"])
        self.set_source_info(tabs)
        for kind, content in zip(kinds, shown, strict=True):
            label = nodes.rubric(
                "", KINDS[kind], classes=["sd-tab-label"], sync_id=kind
            )
            label["sync_group"] = "session"
            tabs += create_component(
                "tab-item",
                classes=["sd-tab-item"],
                selected=False,
                children=[
                    label,
                    create_component(
                        "tab-content", classes=["sd-tab-content"], children=content
                    ),
                ],
            )
        return [tabs]


class Section(LabDirective):
    """The code of one section: ``{section} 0101_connect: The section's title``."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"checks": directives.flag}

    def run(self) -> list[nodes.Node]:
        name, _, title = self.arguments[0].partition(": ")
        path = self.depend(self.root / "examples" / f"{name}.py")
        try:
            source = path.read_text(encoding="utf-8")
            text = section_code(source, title, "checks" in self.options)
        except (OSError, NotInCode) as problem:
            return self.wrong(problem)
        return [self.code(text, "python")]


class LessonHead(LabDirective):
    """The command, and what the lesson does and needs, from its docstring."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        fields = self.lesson(self.arguments[0]).fields
        what = fields["What"]
        return [
            self.code(f"{fields['Run']}\n", "sh"),
            *self.parse_text_to_nodes(f"The lesson {what} It needs {fields['Needs']}"),
        ]


class LessonTable(LabDirective):
    """All lessons with their questions, linked to their pages."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for lesson in self.lessons():
            page = Path(self.env.srcdir) / "lessons" / f"{lesson.name}.md"
            link = f"[{lesson.name}](/lessons/{lesson.name}.md)"
            rows.append([link if page.is_file() else lesson.name, lesson.title])
        return self.table(["lesson", "the question"], rows)


class MakeTargets(LabDirective):
    """Every target with the sentence that ``make help`` prints for it."""

    def run(self) -> list[nodes.Node]:
        makefile = self.depend(self.root / "Makefile").read_text(encoding="utf-8")
        rows = re.findall(r"^([a-z-]+):.*## (.*)", makefile, flags=re.MULTILINE)
        return self.table(
            ["command", "what it does"], [[f"`make {t}`", text] for t, text in rows]
        )


class Ports(LabDirective):
    """Every port that compose.yml publishes on this machine, and its variable."""

    def run(self) -> list[nodes.Node]:
        compose = self.depend(self.root / "compose.yml").read_text(encoding="utf-8")
        services = re.split(r"^  ([a-z-]+):\n", compose, flags=re.MULTILINE)
        rows = [
            [f"127.0.0.1:{port}", f"`{variable}`", service, inside]
            for service, text in zip(services[1::2], services[2::2], strict=True)
            for variable, port, inside in re.findall(
                r"^ +- 127\.0\.0\.1:\$\{(\w+):-(\d+)\}:(\d+)$", text, flags=re.MULTILINE
            )
        ]
        return self.table(
            ["on your machine", "moved by", "service", "port in its container"], rows
        )


class Diagram(LabDirective):
    """A drawing of ``docs/diagrams``, inline, so that it takes on the page's colours.

    ``:alt:`` says what there is to see, for those who do not see it.
    """

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.srcdir) / "diagrams" / f"{self.arguments[0]}.svg"
        alt = html.escape(" ".join(self.options.get("alt", "").split()))
        if not path.is_file() or not alt:
            return self.wrong(f"{path.name} or its :alt: is missing")
        svg = self.depend(path).read_text(encoding="utf-8")
        drawn = svg.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
        text = f'<div class="lab-diagram">{drawn}</div>'
        return [nodes.raw(text, text, format="html")]


class Measured(SphinxRole):
    """``{measured}`lesson:kind:what```: one value of a transcript, with its origin."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        lesson, _, rest = self.text.partition(":")
        kind, _, wanted = rest.partition(":")
        folder = Path(self.env.srcdir) / "transcripts"
        try:
            transcript = read(folder, lesson, kind)
            value = plain(transcript.value(wanted))
        except NotInTranscript as problem:
            LOGGER.warning(
                "measured: %s:%s: %s",
                lesson,
                kind,
                problem,
                location=self.get_location(),
            )
            return [], []
        self.env.note_dependency(str(folder / kind / f"{lesson}.txt"))
        origin = f"{lesson}, {KINDS[kind]}, {transcript.header['date']}"
        node = nodes.abbreviation(value, value, explanation=origin)
        node["classes"].append("measured")
        return [node], []
