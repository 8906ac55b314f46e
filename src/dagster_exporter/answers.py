"""Reading Dagster's answers: what is missing or strange is a failure, never a zero."""

import math
from typing import Any, Protocol

from dagster_exporter.failures import Failure

Node = dict[str, Any]
"""An object of a GraphQL answer."""


class Asks(Protocol):
    """Whoever answers questions about Dagster; ``client.Client`` outside of tests."""

    async def ask(self, query: str, **variables: Any) -> Node:
        """The data that answers ``queries/{query}.graphql``, or a ``Failure``."""


def member(node: Node, field: str, wanted: str) -> Node:
    """``node[field]`` if it is the member ``wanted`` of its union; else the failure.

    The query must ask for ``__typename``, and for ``message`` on errors.
    """
    found = child(node, field)
    kind = text(found, "__typename")
    if kind == wanted:
        return found
    message = found.get("message") or "without a message"
    reason = "python_error" if kind == "PythonError" else "unexpected_type"
    raise Failure(reason, f"{field} answered {kind}: {str(message).strip()}")


def child(node: Node, field: str) -> Node:
    """The object ``node[field]``."""
    found = _field(node, field)
    if not isinstance(found, dict):
        raise _strange(field, found, "an object")
    return found


def children(node: Node, field: str) -> list[Node]:
    """The list of objects ``node[field]``."""
    found = _field(node, field)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _strange(field, found, "a list of objects")
    return found


def text(node: Node, field: str) -> str:
    """The string ``node[field]``."""
    found = _field(node, field)
    if not isinstance(found, str):
        raise _strange(field, found, "a text")
    return _encodable(found, field)


def number(node: Node, field: str) -> float:
    """The number ``node[field]``."""
    found = optional_number(node, field)
    if found is None:
        raise _strange(field, found, "a number")
    return found


def optional_number(node: Node, field: str) -> float | None:
    """The number ``node[field]``; ``None`` where Dagster has none."""
    found = _field(node, field)
    if found is None:
        return None
    # A bool is an int for Python; MaterializationEvent gives its time as a text.
    if isinstance(found, (int, float, str)) and not isinstance(found, bool):
        try:
            value = float(found)
        except (ValueError, OverflowError):
            value = math.nan
        if math.isfinite(value):
            return value
    raise _strange(field, found, "a finite number")


def optional_flag(node: Node, field: str) -> bool | None:
    """The truth value ``node[field]``; ``None`` where Dagster has none."""
    found = _field(node, field)
    if found is None or isinstance(found, bool):
        return found
    raise _strange(field, found, "true or false")


def asset_key(node: Node) -> str:
    """The path of ``node["assetKey"]``, joined as Dagster's own pages join it."""
    path = _field(child(node, "assetKey"), "path")
    if not isinstance(path, list):
        raise _strange("path", path, "a list")
    return _encodable("/".join(map(str, path)), "path")


def _encodable(found: str, field: str) -> str:
    # JSON can hold half of a character ("\\ud800"), which no exposition can.
    try:
        found.encode()
    except UnicodeEncodeError:
        raise Failure("missing_field", f"{field} is no valid text") from None
    return found


def _field(node: Node, field: str) -> Any:
    if field not in node:
        raise Failure("missing_field", f"the answer has no field {field}")
    return node[field]


def _strange(field: str, found: object, wanted: str) -> Failure:
    kind = "null" if found is None else type(found).__name__
    return Failure("missing_field", f"{field} is {kind} and not {wanted}")
