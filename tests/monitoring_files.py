"""What stands in ``monitoring/``: rules, their tests, dashboards, all expressions."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from compose_cluster import ROOT

from dask_cluster_lab.metrics.prometheus import Prometheus

PROMETHEUS = ROOT / "monitoring" / "prometheus"
RULE_FILES = sorted((PROMETHEUS / "rules").glob("*.yml"))
RULE_TESTS = sorted((PROMETHEUS / "rules" / "tests").glob("*.yml"))
DASHBOARDS = sorted((ROOT / "monitoring" / "grafana" / "dashboards").glob("*.json"))

RATE_INTERVAL = "1m"
"""For Grafana's ``$__rate_interval``, which is at least four times the scrape
interval."""

_MATCHERS = re.compile(r"(\{[^}]*\})")
_COMPARISON = re.compile(r"(==|!=|[<>]=?+)(?!\s*bool)\s*")
_SET = re.compile(r"\s+(?:and|unless)\b(?:\s+(?:on|ignoring)\s*\([^)]*\))?\s*")


@dataclass(frozen=True)
class Rule:
    """A rule of Prometheus, as its file has it."""

    file: str
    kind: str
    """``record`` or ``alert``."""
    name: str
    text: dict[str, Any]

    @property
    def expression(self) -> str:
        return " ".join(self.text["expr"].split())


@dataclass(frozen=True)
class Expression:
    """What Prometheus is asked, in a form that has an answer while nothing is wrong."""

    where: str
    text: str


def load(path: Path) -> Any:
    """A YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rules(kind: str = "") -> list[Rule]:
    """All rules, or those of a kind."""
    return [
        Rule(path.stem, found, text[found], text)
        for path in RULE_FILES
        for group in load(path)["groups"]
        for text in group["rules"]
        for found in ("record", "alert")
        if found in text and kind in ("", found)
    ]


def rule_cases(key: str) -> list[dict[str, Any]]:
    """The cases of all rule tests: ``alert_rule_test`` or ``promql_expr_test``."""
    return [
        case
        for path in RULE_TESTS
        for test in load(path)["tests"]
        for case in test.get(key, [])
    ]


def dashboards() -> dict[str, dict[str, Any]]:
    """Name of the file to the dashboard."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in DASHBOARDS}


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels, those inside collapsed rows as well; no rows."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", [])
        else:
            yield panel


def answerable(alert: str) -> list[str]:
    """The parts of an alert's expression, each with an answer while nothing is wrong.

    A comparison drops what it does not hold for, and with ``bool`` gives 0 or 1
    instead; ``and`` drops what has no partner, so each side is asked alone.
    """
    return [
        "".join(
            part if part.startswith("{") else _COMPARISON.sub(r"\1 bool ", part)
            for part in _MATCHERS.split(side)
        )
        for side in _SET.split(alert)
    ]


def unanswered(server: Prometheus, texts: set[str], seconds: float = 90) -> set[str]:
    """Which of these expressions have given no data yet after so long."""
    deadline = time.monotonic() + seconds
    missing = {text for text in texts if not server.query(text)}
    while missing and time.monotonic() < deadline:
        time.sleep(2)
        missing = {text for text in missing if not server.query(text)}
    return missing


def expressions() -> list[Expression]:
    """All that recording rules, alerts and dashboards ask Prometheus."""
    found = []
    for rule in rules():
        where = f"{rule.file}.yml: {rule.name}"
        alert = rule.kind == "alert"
        texts = answerable(rule.expression) if alert else [rule.expression]
        found += [Expression(where, text) for text in texts]
        if rule.kind == "record":
            found.append(Expression(f"{where}, recorded", rule.name))
    for name, dashboard in dashboards().items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                where = f"{name}.json: {panel['title']}, {target['refId']}"
                text = target["expr"].replace("$__rate_interval", RATE_INTERVAL)
                found.append(Expression(where, text))
    return found
