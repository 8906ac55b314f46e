"""The log: one JSON object a line on standard error, fields instead of prose."""

import json
import logging
import sys
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

LONGEST = 400
"""Characters of one field: a server's message can have any number of them."""

_logger = logging.getLogger("dagster_exporter")


def hide(text: str, secrets: Iterable[str]) -> str:
    """``text`` without these values, and without their words.

    A server or a proxy may repeat our headers in what it answers.
    """
    words = {word for value in secrets for word in (value, *value.split())}
    # The longest first: one that begins another would leave the other's end.
    for secret in sorted(words, key=len, reverse=True):
        if len(secret) > 3:
            text = text.replace(secret, "***")
    return text


class JsonLines(logging.Formatter):
    """Formats every record, those of libraries too, without the ``secrets``."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        when = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[2]:
            line["at"] = where(record.exc_info[2])
        return json.dumps(_hidden(line, self._secrets), default=str)


def _hidden(line: dict[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    # Cut afterwards: the beginning of a secret is none that could be found.
    return {
        name: hide(value, secrets)[:LONGEST] if isinstance(value, str) else value
        for name, value in line.items()
    }


def set_up(secrets: Iterable[str]) -> None:
    """Log to standard error, without the ``secrets``; of libraries what is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(secrets))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _logger.setLevel(logging.INFO)


def info(event: str, **fields: Any) -> None:
    """Something that is as it should be."""
    _logger.info(event, extra={"fields": fields})


def warning(event: str, **fields: Any) -> None:
    """Something that is wrong."""
    _logger.warning(event, extra={"fields": fields})


def where(trace: Any) -> list[str]:
    """The places of a traceback, without messages: those may hold what is secret."""
    return [f"{one.filename}:{one.lineno}" for one in traceback.extract_tb(trace)[-4:]]
