"""Settings: from the command line, else the environment, else a default.

They are read here and nowhere else, once, at the start. What cannot be meant is a
``SettingsError``: one sentence that says which setting, and never what is secret.
"""

import argparse
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

PREFIX = "DAGSTER_EXPORTER_"
HEADERS_VARIABLE = PREFIX + "HEADERS"
"""Headers, one a line. There is no such option: command lines are for all to see."""


class SettingsError(Exception):
    """A setting that cannot be meant; the text is one sentence for people."""


@dataclass(frozen=True)
class Settings:
    """All settings, valid. Times are in seconds, sizes in bytes."""

    endpoint: str = "http://127.0.0.1:3000/graphql"
    interval: float = 15.0
    timeout: float = 10.0
    page_size: int = 500
    look_back: float = 0.0
    safety_margin: float = 120.0
    max_body: int = 16 << 20
    listen: tuple[str, int] = ("127.0.0.1", 9101)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None
    verify: bool = True
    state_file: Path | None = None


def _endpoint(value: str) -> str:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise SettingsError("is no address that can be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise SettingsError("must be like http://host:3000/graphql")
    if not re.fullmatch(r"[!-~]+", value):
        raise SettingsError("must be plain ASCII without blanks")
    if "@" in value or parts.query or parts.fragment:
        raise SettingsError(
            "must not hold a user, a password, a query or a fragment; put what is "
            f"secret into {HEADERS_VARIABLE} or the headers file"
        )
    return value


def _listen(value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    if not host or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        raise SettingsError("must be like 127.0.0.1:9101")
    return host.strip("[]"), int(port)


def _between(kind: type, low: float, high: float) -> Callable[[str], Any]:
    def read(value: str) -> Any:
        try:
            found = kind(value)
        except ValueError:
            found = None
        if found is None or not low <= found <= high:
            what = "a whole number" if kind is int else "a number"
            raise SettingsError(f"must be {what} from {low:g} to {high:g}")
        return found

    return read


def _switch(value: str) -> bool:
    if value not in ("true", "false"):
        raise SettingsError("must be true or false")
    return value == "true"


def _file(value: str) -> Path:
    path = Path(value)
    if not path.is_file():
        raise SettingsError("names no file")
    return path


def _authorities(value: str) -> Path:
    path = _file(value)
    try:
        ssl.create_default_context(cafile=path)
    except (ssl.SSLError, OSError):
        raise SettingsError("holds no certificate in PEM form") from None
    return path


def _state_file(value: str) -> Path:
    path = Path(value)
    if path.is_dir() or not path.parent.is_dir():
        raise SettingsError("must name a file in a folder that exists")
    return path


@dataclass(frozen=True)
class Option:
    """A setting: how it is read, and what it means."""

    name: str
    read: Callable[[str], Any]
    meaning: str

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper()


DAY = 86400.0
OPTIONS = (
    Option("endpoint", _endpoint, "the address of Dagster's GraphQL API"),
    Option("interval", _between(float, 0.1, DAY), "seconds between two polls"),
    Option("timeout", _between(float, 0.1, DAY), "seconds for one whole request"),
    Option("page_size", _between(int, 1, 1000), "runs in one request"),
    Option(
        "look_back",
        _between(float, 0, 366 * DAY),
        "seconds before the start in which runs that ended are counted, too",
    ),
    Option(
        "safety_margin",
        _between(float, 1, DAY),
        "seconds that a run's end may become visible late",
    ),
    Option("max_body", _between(int, 1024, 1 << 30), "bytes of one answer, at most"),
    Option("listen", _listen, "host:port where /metrics is served"),
    Option("headers_file", _file, "a file with headers for Dagster, one a line"),
    Option("ca_file", _authorities, "certificates to trust instead of the system's"),
    Option(
        "verify", _switch, "whether Dagster's certificate is checked: true or false"
    ),
    Option("state_file", _state_file, "a file that keeps the totals over a restart"),
)


def read_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """The settings; raises ``SettingsError`` with a sentence."""
    given = vars(_parser().parse_args(arguments))
    values: dict[str, Any] = {}
    for option in OPTIONS:
        name, value = option.flag, given[option.name]
        if value is None:
            name, value = option.variable, environ.get(option.variable)
        if value is not None:
            try:
                values[option.name] = option.read(value)
            except SettingsError as error:
                raise SettingsError(f"{name} {error}.") from None
    headers = _headers(environ.get(HEADERS_VARIABLE, ""), HEADERS_VARIABLE)
    path = values.pop("headers_file", None)
    if path is not None:
        try:
            lines = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            raise SettingsError("the headers file cannot be read.") from None
        headers |= _headers(lines, "the headers file")
    return Settings(**values, headers=headers)


def _headers(lines: str, where: str) -> dict[str, str]:
    """``Name: value`` lines as a dictionary; errors tell the line, not its text."""
    headers = {}
    for position, line in enumerate(lines.splitlines(), start=1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        token = re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name)
        if not colon or not token or not value.strip().isprintable():
            raise SettingsError(
                f"line {position} of {where} is not like 'Name: value'."
            )
        if not value.isascii():
            raise SettingsError(f"line {position} of {where} is not plain ASCII.")
        headers[name] = value.strip()
    return headers


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized"):  # repeats them, secrets included
            message = "there are arguments that nobody knows"
        raise SettingsError(f"{message}; --help lists what there is.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dagster-exporter",
        description="Watches Dagster from outside and serves Prometheus metrics.",
        epilog=f"Headers for authentication: {HEADERS_VARIABLE} or --headers-file, "
        "lines like 'Authorization: Bearer TOKEN'.",
        allow_abbrev=False,
    )
    defaults = Settings()
    for option in OPTIONS:
        default = getattr(defaults, option.name, None)
        if isinstance(default, tuple):
            default = "{}:{}".format(*default)
        shown = "" if default is None else f"; default {str(default).lower()}"
        parser.add_argument(
            option.flag,
            dest=option.name,
            metavar="VALUE",
            help=f"{option.meaning} [{option.variable}{shown}]",
        )
    return parser
