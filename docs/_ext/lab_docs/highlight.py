"""Colour for transcripts: the marks of checks and the titles of sections."""

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Generic, Keyword, Text


class TranscriptLexer(RegexLexer):  # type: ignore[misc]  # Pygments is not typed
    """Lexer for the output of a lesson."""

    name = "transcript"
    aliases = ("transcript",)
    tokens = {  # noqa: RUF012, Pygments declares it so
        "root": [
            (r"^(ok)( )", bygroups(Generic.Inserted, Text)),
            (r"^(FAIL)( )", bygroups(Generic.Deleted, Text)),
            (r"^(n/a)( )", bygroups(Keyword, Text)),
            (r"^(\S.*)(\n)(-{3,})$", bygroups(Generic.Heading, Text, Text)),
            (r".*\n", Text),
        ]
    }
