"""The site says everything, says it once, and shows nothing that is not recorded."""

import ast
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from compose_cluster import ROOT
from docs_site import DOCS, Site
from test_documented import COMPOSE, TARGETS, variables

from dask_cluster_lab.commands.catalogue import LessonFile, read_lesson

LESSONS = [read_lesson(path) for path in sorted((ROOT / "examples").glob("*.py"))]
SOURCES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
PAGES = [path for path in SOURCES if path != DOCS / "README.md"]
PROSE_PAGES = [path for path in PAGES if "reference" not in path.parts]
SECTIONS = [
    "The question",
    "Predict",
    "The code",
    "The output",
    "Reading the numbers",
    "Why it matters",
    "Traps",
    "Experiments",
    "Where to go next",
]
CHAPTER_AFTER = {
    "0604_ephemeral_workers": "../metrics.md",
    "0702_exporter_health": "../exporter.md",
}
"""Where a chapter about the whole phase comes before the next lesson."""
ENDS = {DOCS / folder / "index.md" for folder in ("", "lessons", "reference")}
"""Pages that end with a table of contents."""
COMMAND = re.compile(r"(?:`|^|\d )make ([a-z-]+)\b", re.MULTILINE)
FENCE = re.compile(r"^(`{3,}|:{3,})([^\n]*)\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
QUANTITY = re.compile(
    r"(?<![\w.,])\d[\d.,]*\s?(?:%|ns|µs|us|ms|s|seconds?|minutes?|bytes?|kB|MB|GB|KiB|MiB"
    r"|GiB|x|times|tasks|arrays|messages|calls|copies|tiles)(?!\w)"
)


def page_id(value: Path | LessonFile) -> str:
    return value.stem if isinstance(value, Path) else value.name


def prose(path: Path) -> str:
    """A page's text as its author wrote it, without code, roles and link targets."""
    text = path.read_text(encoding="utf-8")
    while (shorter := FENCE.sub("", text)) != text:
        text = shorter
    text = re.sub(r"\{[\w:+-]+\}`[^`]*`", "", text)  # roles, and what they bring
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"\[[^\]]*\]\(https?:[^)]*\)", "", text)  # has its source beside it
    return re.sub(r"\]\([^)]*\)", "]", text)


def words_of(page: str) -> str:
    """What a built page says, in one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


# Every lesson has its page, and every page its parts


def test_a_page_for_each_lesson_and_no_other() -> None:
    pages = {path.stem for path in (DOCS / "lessons").glob("*.md")} - {"index"}
    assert pages == {lesson.name for lesson in LESSONS}


@pytest.mark.parametrize("lesson", LESSONS, ids=page_id)
def test_page_of_a_lesson_has_all_parts(lesson: LessonFile) -> None:
    path = DOCS / "lessons" / f"{lesson.name}.md"
    text = path.read_text(encoding="utf-8")
    title = lesson.title.removesuffix(".")
    assert text.startswith(f"# {lesson.name[:4]}: {title}\n")
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == SECTIONS
    for directive in ("lesson-head", "transcripts"):
        assert f"```{{{directive}}} {lesson.name}\n```" in text
    assert f"literalinclude}} /../examples/{lesson.name}.py\n```" in text  # the whole
    traps = text.partition("## Traps")[2].partition("\n## ")[0]
    assert "https://github.com/" in traps, "no public report is linked"


@pytest.mark.parametrize("lesson", LESSONS, ids=page_id)
def test_page_of_a_lesson_leads_to_the_next(lesson: LessonFile) -> None:
    text = (DOCS / "lessons" / f"{lesson.name}.md").read_text(encoding="utf-8")
    last = text.rstrip().split("\n\n")[-1]
    if lesson.name in CHAPTER_AFTER:
        assert f"({CHAPTER_AFTER[lesson.name]})" in last
    else:
        following = LESSONS[LESSONS.index(lesson) + 1].name
        assert last.startswith(f"Next: [{following[:4]}]({following}.md)")


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_a_page_says_where_to_go_next(path: Path) -> None:
    last = path.read_text(encoding="utf-8").rstrip().split("\n\n")[-1]
    if path not in ENDS:
        assert re.search(r"\]\([\w./#-]+\)", last), last


@pytest.mark.parametrize("lesson", LESSONS, ids=page_id)
def test_page_of_a_lesson_has_a_readable_length(lesson: LessonFile) -> None:
    words = len(prose(DOCS / "lessons" / f"{lesson.name}.md").split())
    assert 600 <= words <= 1500


# Nothing is shown that was not recorded


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_no_output_is_typed_by_hand(path: Path) -> None:
    fences = re.findall(
        r"^[`:]{3,}[ \t]*(\S*)", path.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    opening = {name for name in fences if name}
    assert all(name == "sh" or name.startswith("{") for name in opening)
    assert not opening & {"{code}", "{code-block}", "{parsed-literal}", "{sourcecode}"}
    # A fence without a name would open an anonymous block.
    assert fences.count("") == sum(bool(name) for name in fences)


@pytest.mark.parametrize("path", PROSE_PAGES, ids=page_id)
def test_every_quantity_has_a_source(path: Path) -> None:
    assert not QUANTITY.findall(prose(path)), (
        "quote it with {measured}, or make it the text of a link to its source"
    )


def test_every_transcript_is_used() -> None:
    shown = set()
    for path in PAGES:
        shown |= set(re.findall(r"\{transcripts\} (\w+)\n```", path.read_text("utf-8")))
    recorded = {path.stem for path in (DOCS / "transcripts").glob("*/*.txt")}
    assert recorded == shown


# Everything that can be typed, set or imported is there


def test_every_target_is_explained(site: Site) -> None:
    source = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    assert [t for t in TARGETS if f"`make {t}`" not in source] == []
    page = words_of(site.page("reference/commands"))
    assert [t for t in TARGETS if f"make {t} " not in page] == []
    named = {
        name for path in PAGES for name in COMMAND.findall(path.read_text("utf-8"))
    }
    assert named <= set(TARGETS)


def test_every_variable_and_port_is_explained(site: Site) -> None:
    page = words_of(site.page("reference/settings"))
    assert {name for name in variables() if name not in page} == set()
    ports = re.findall(
        r"- 127\.0\.0\.1:\$\{(\w+):-(\d+)\}:(\d+)$", COMPOSE, re.MULTILINE
    )
    assert len(ports) >= 2
    for variable, outside, inside in ports:
        assert re.search(rf"127\.0\.0\.1:{outside} {variable} \S+ {inside}", page)


def public_names() -> set[str]:
    """Every public module, class, function and method of the package."""
    names = set()
    source = ROOT / "src"
    for path in source.rglob("*.py"):
        if path.name in {"__init__.py", "__main__.py"}:
            continue
        module = ".".join(path.relative_to(source).with_suffix("").parts)
        names.add(module)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(f"{module}.{node.name}")
            if isinstance(node, ast.ClassDef):
                names |= {
                    f"{module}.{node.name}.{method.name}"
                    for method in node.body
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
                }
    return {n for n in names if not any(part[0] == "_" for part in n.split("."))}


def test_every_public_name_is_in_the_reference(site: Site) -> None:
    packed = (site.folder / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = zlib.decompress(packed).decode().splitlines()
    documented = {line.split(" ")[0] for line in entries if " py:" in line}
    assert not public_names() - documented


# The built site


class Reader(HTMLParser):
    """What the tests ask of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.h1 = 0
        self.unnamed_pictures: list[str] = []
        self.language = ""
        self.feed(text)

    def handle_starttag(self, tag: str, pairs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in pairs}
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "html":
            self.language = attributes.get("lang", "")
        if tag == "h1":
            self.h1 += 1
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        if tag == "link" and attributes.get("rel") not in {"index", "search", "next"}:
            self.loads.append(attributes.get("href", ""))
        if tag in {"script", "img", "iframe", "source", "video", "audio", "embed"}:
            self.loads.append(attributes.get("src", ""))
        if tag == "img" and not attributes.get("alt"):
            self.unnamed_pictures.append(str(attributes))
        if tag == "svg" and not (
            attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
        ):
            self.unnamed_pictures.append(str(attributes))


def readers(site: Site) -> dict[Path, Reader]:
    return {
        p: Reader(p.read_text(encoding="utf-8")) for p in site.folder.rglob("*.html")
    }


def test_links_and_anchors_lead_somewhere(site: Site) -> None:
    pages = readers(site)
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (
                (path.parent / unquote(parts.path)).resolve() if parts.path else path
            )
            anchor = unquote(parts.fragment)
            if not target.is_file() or (
                anchor and target in pages and anchor not in pages[target].ids
            ):
                broken.append(f"{path.name}: {link}")
    assert not broken


def test_links_outside_are_encrypted(site: Site) -> None:
    links = {link for page in readers(site).values() for link in page.links}
    local = ("http://127.0.0.1", "http://localhost")
    plain = {link for link in links if link.startswith("http:")}
    assert not {link for link in plain if not link.startswith(local)}


@pytest.mark.parametrize("fault", ["h1", "pictures", "language", "ids"])
def test_pages_are_well_made(fault: str, site: Site) -> None:
    for path in site.pages():
        page = Reader(path.read_text(encoding="utf-8"))
        match fault:
            case "h1":
                assert page.h1 == 1, path
            case "pictures":
                assert not page.unnamed_pictures, path
            case "language":
                assert page.language == "en", path
            case "ids":
                assert len(page.ids) == len(set(page.ids)), path


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    loads = {load for page in readers(site).values() for load in page.loads}
    assert loads
    assert not {load for load in loads if urlsplit(load).netloc}
    for path in site.folder.rglob("*.css"):
        style = path.read_text(encoding="utf-8")
        used = re.findall(r"(?:url\(|@import\s+)['\"]?([^'\")\s;]+)", style)
        assert not [url for url in used if urlsplit(url).netloc], path


def test_code_and_transcripts_are_on_the_page(site: Site) -> None:
    page = re.sub(r"<[^>]+>", "", site.page("lessons/0101_connect"))
    assert "def where_am_i()" in page
    assert "8 checks: 8 ok" in page
    assert "n/a  the task ran on another host than the client" in page
