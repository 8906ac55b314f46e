"""Prometheus' rules are valid, and each was seen to fire and not to fire."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import pairwise

import pytest
from compose_cluster import ROOT, why_no_docker
from conftest import leave_out
from monitoring_files import (
    PROMETHEUS,
    RULE_FILES,
    RULE_TESTS,
    Rule,
    answerable,
    expressions,
    rule_cases,
    rules,
)

from dask_cluster_lab.metrics.labels import STAGES
from dask_cluster_lab.metrics.survey import THRESHOLD

ALERTS = rules("alert")
RECORDED = rules("record")
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
Promtool = Callable[..., str]


def name_of(rule: Rule) -> str:
    return rule.name


# By Prometheus' own tool


def image() -> str:
    """The image of Prometheus, as compose.yml has it."""
    compose = (ROOT / "compose.yml").read_text(encoding="utf-8")
    default = re.findall(r"\$\{PROMETHEUS_IMAGE:-(.+?)\}", compose)
    assert len(default) == 1
    return os.environ.get("PROMETHEUS_IMAGE") or str(default[0])


def is_here(image: str) -> bool:
    """Whether the image is on this machine; fetched if a registry has it."""
    for command in ("image inspect", "pull --quiet"):
        done = subprocess.run(
            ["docker", *command.split(), image],
            capture_output=True,
            timeout=300,
            check=False,
        )
        if done.returncode == 0:
            return True
    return False


@pytest.fixture(scope="module")
def promtool() -> Promtool:
    """Runs promtool in the folder of Prometheus' configuration; its output."""
    command = ["promtool"]
    if shutil.which("promtool") is None:
        if why_no_docker() or not is_here(image()):
            leave_out(
                f"there is neither promtool nor the image {image()}",
                "install promtool, or set PROMETHEUS_IMAGE to an image that has it",
            )
        mount = ["-v", f"{PROMETHEUS}:/rules:ro", "-w", "/rules"]
        entry = ["--entrypoint", "/bin/promtool"]
        command = ["docker", "run", "--rm", *mount, *entry, image()]

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*command, *arguments],
            cwd=PROMETHEUS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def test_configuration_is_valid(promtool: Promtool) -> None:
    promtool("check", "config", "--lint=all", "--lint-fatal", "prometheus.yml")


def test_configuration_for_kubernetes_is_valid(promtool: Promtool) -> None:
    """It cannot be tried here; that Prometheus accepts it can."""
    promtool("check", "config", "--lint=all", "--lint-fatal", "kubernetes.yml")


def test_jobs_on_kubernetes_have_the_names_that_rules_ask_for() -> None:
    config = (PROMETHEUS / "kubernetes.yml").read_text(encoding="utf-8")
    there = set(re.findall(r"job_name: (\S+)", config))
    asked = {
        job
        for one in (*ALERTS, *RECORDED)
        for job in re.findall(r'job="(dask-[a-z]+)"', one.expression)
    }
    assert asked
    assert asked <= there


def test_rules_are_valid(promtool: Promtool) -> None:
    paths = [str(path.relative_to(PROMETHEUS)) for path in RULE_FILES]
    out = promtool("check", "rules", "--lint=all", "--lint-fatal", *paths)
    assert out.count("SUCCESS") == len(paths)


@pytest.mark.parametrize("name", [path.name for path in RULE_TESTS])
def test_rules_fire_when_they_should(name: str, promtool: Promtool) -> None:
    assert "SUCCESS" in promtool("test", "rules", f"rules/tests/{name}")


# Nothing is left out


def test_prometheus_reads_every_file_of_rules() -> None:
    config = (PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8")
    assert "rule_files:\n  - rules/*.yml\n" in config
    assert {path.stem for path in RULE_FILES} >= {"recording", "alerts"}


@pytest.mark.parametrize("name", sorted({alert.name for alert in ALERTS}))
def test_alert_has_a_case_that_fires_and_one_that_does_not(name: str) -> None:
    cases = rule_cases("alert_rule_test")
    fired = {bool(case["exp_alerts"]) for case in cases if case["alertname"] == name}
    assert fired == {True, False}


def test_rule_tests_name_alerts_that_exist() -> None:
    named = {case["alertname"] for case in rule_cases("alert_rule_test")}
    assert named == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("rule", RECORDED, ids=name_of)
def test_recorded_series_has_a_case(rule: Rule) -> None:
    cases = [
        case
        for case in rule_cases("promql_expr_test")
        if case["expr"].partition("{")[0] == rule.name
    ]
    assert any(case.get("exp_samples") for case in cases)


@pytest.mark.parametrize("rule", ALERTS, ids=name_of)
def test_alert_says_what_is_wrong_and_what_to_do(rule: Rule) -> None:
    assert rule.text["labels"]["severity"] in {"warning", "critical"}
    assert rule.text["annotations"].keys() == {"summary", "description"}
    for text in rule.text["annotations"].values():
        assert text.strip().endswith(".")
    # A label that the rule itself adds is not yet there when the text is made.
    added = rule.text["labels"]
    used = re.findall(r"\$labels\.(\w+)", str(rule.text["annotations"]))
    assert not [label for label in used if label in added]


@pytest.mark.parametrize("rule", [*ALERTS, *RECORDED], ids=name_of)
def test_rule_is_documented(rule: Rule) -> None:
    assert f"\n| `{rule.name}` |" in PAGE


# The numbers in the rules are those of the code


def test_residual_alerts_follow_the_threshold_of_the_gate() -> None:
    limits = {
        alert.name: float(alert.expression.split()[-1])
        for alert in ALERTS
        if alert.name.startswith("Residual")
    }
    assert limits == pytest.approx(
        {
            "ResidualNearThreshold": 0.9 * THRESHOLD,
            "ResidualBeyondThreshold": THRESHOLD,
        }
    )


def test_every_stage_is_watched_by_the_one_before_it() -> None:
    pairs = [
        tuple(re.findall(r'stage="(\w+)"', alert.expression))
        for alert in ALERTS
        if alert.name == "StageStopped"
    ]
    assert pairs == [(stage, before) for before, stage in pairwise(STAGES)]


# The form in which a server is asked


def test_parts_of_an_alert_always_answer() -> None:
    assert answerable('up{job!="a"} == 0') == ['up{job!="a"} == bool 0']
    assert answerable("a < b unless ignoring (x) c >= 1 and on () d > bool 2") == [
        "a < bool b",
        "c >= bool 1",
        "d > bool 2",
    ]


def test_expressions_are_those_of_rules_and_dashboards() -> None:
    found = expressions()
    assert len(found) > len(ALERTS) + 2 * len(RECORDED)
    assert {one.where.partition(":")[0] for one in found} >= {
        "alerts.yml",
        "recording.yml",
        "cluster.json",
        "pipeline.json",
    }
    assert not [one for one in found if "$" in one.text]
