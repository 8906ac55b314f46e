"""Parts of a lesson's code, found by name: a section of its story by its title."""

import ast
import re
import textwrap

SHOWS = {"print", "table", "bars", "check"}


class NotInCode(Exception):
    """The page names a section that the lesson does not have."""


def section_code(source: str, title: str, keep_checks: bool = False) -> str:
    """The statements between ``lesson.section(title)`` and the next section.

    What only prints or checks is left out, since its output is in the transcript; with
    ``keep_checks`` the checks stay. In a title that the lesson builds when it runs (an
    f-string), ``...`` stands for each part in braces.
    """
    lines = source.splitlines()
    titles = []
    for block in _blocks(ast.parse(source)):
        starts = [(i, t) for i, s in enumerate(block) if (t := _section_title(s))]
        titles += [t for _, t in starts]
        for place, (index, found) in enumerate(starts):
            if found == title:
                last = place + 1 == len(starts)
                end = len(block) if last else starts[place + 1][0]
                return _without_printing(lines, block[index + 1 : end], keep_checks)
    raise NotInCode(f"no section {title!r}; there are: {'; '.join(titles)}")


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    """Every list of statements in the file."""
    return [
        body
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
    ]


def _called(statement: ast.stmt) -> tuple[str, ast.Call] | None:
    """Name and call, if the statement is nothing but a call."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Name):
            return function.id, statement.value
        if isinstance(function, ast.Attribute):
            return function.attr, statement.value
    return None


def _section_title(statement: ast.stmt) -> str:
    called = _called(statement)
    if not called or called[0] != "section" or not called[1].args:
        return ""
    match called[1].args[0]:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                str(part.value) if isinstance(part, ast.Constant) else "..."
                for part in parts
            )
    return ""


def _without_printing(
    lines: list[str], statements: list[ast.stmt], keep_checks: bool
) -> str:
    hidden = SHOWS - {"check"} if keep_checks else SHOWS
    kept: list[str] = []
    for before, statement in zip([None, *statements], statements, strict=False):
        called = _called(statement)
        if called and called[0] in hidden:
            continue
        start = before.end_lineno if before else statement.lineno - 1
        # Comments and empty lines before a statement belong to it.
        kept += lines[start or 0 : statement.end_lineno]
    text = textwrap.dedent("\n".join(kept)).strip("\n")
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"
