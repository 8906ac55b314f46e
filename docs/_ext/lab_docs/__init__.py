"""The site's own directives and roles: what makes it show only what is true.

``{transcripts}``  a lesson's recorded output, in tabs that follow from page to page
``{measured}``     one value out of a transcript; the build fails if it is not there
``{section}``      the code of one section of a lesson, without its printing
``{lesson-head}``  what, why, needs and run, from the lesson's docstring
``{lesson-table}`` all lessons and their questions
``{make-targets}`` all targets of the Makefile
``{diagram}``      a drawing that follows the page's colours
``{ports}``        all ports that compose.yml publishes
"""

from typing import Any

from sphinx.application import Sphinx

from lab_docs.directives import (
    Diagram,
    LessonHead,
    LessonTable,
    MakeTargets,
    Measured,
    Ports,
    Section,
    Transcripts,
)
from lab_docs.highlight import TranscriptLexer


def readable_signature(
    _app: Sphinx,
    _what: str,
    _name: str,
    _object: Any,
    _options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Of a dataclass: a default that is made anew each time, as ``...``."""
    return signature and signature.replace("<factory>", "..."), returns


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything with Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("transcripts", Transcripts)
    app.add_directive("section", Section)
    app.add_directive("lesson-head", LessonHead)
    app.add_directive("lesson-table", LessonTable)
    app.add_directive("make-targets", MakeTargets)
    app.add_directive("ports", Ports)
    app.add_directive("diagram", Diagram)
    app.add_role("measured", Measured())
    app.connect("autodoc-process-signature", readable_signature)
    app.add_lexer("transcript", TranscriptLexer)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
