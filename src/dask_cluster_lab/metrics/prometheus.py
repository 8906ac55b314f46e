"""Ask a Prometheus server, a target's text, or the registry of a process.

The HTTP API is three lines of JSON, so this needs no client library.
"""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from dask_cluster_lab.errors import LabError

SECONDS = 10.0
NO_ANSWER = (OSError, ValueError, http.client.HTTPException)
"""What ``urlopen`` and the reading of its answer raise if there is none, or junk."""


@dataclass(frozen=True)
class Series:
    """One series of an answer: its labels, and its value now."""

    labels: dict[str, str]
    value: float


class Prometheus:
    """A Prometheus server at ``address``, as in ``http://127.0.0.1:9090``."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    def query(self, expression: str, when: float | None = None) -> list[Series]:
        """The series that an expression gives now, or at a time in epoch seconds.

        Raises ``LabError`` if the server does not answer or refuses the expression.
        """
        parameters = {"query": expression}
        if when is not None:
            parameters["time"] = f"{when:.3f}"
        data = self._get("query", parameters)
        if data["resultType"] == "scalar":
            return [Series({}, float(data["result"][1]))]
        return [Series(one["metric"], float(one["value"][1])) for one in data["result"]]

    def value(self, expression: str, default: float = float("nan")) -> float:
        """The one value that an expression gives; ``default`` if it gives none.

        Raises ``LabError`` also if it gives several.
        """
        series = self.query(expression)
        if len(series) > 1:
            raise LabError(f"{expression!r} gives {len(series)} series, not one.")
        return series[0].value if series else default

    def targets(self, job: str) -> dict[str, str]:
        """Instance to health (``up``, ``down``, ``unknown``) of the job's targets."""
        active = self._get("targets", {"state": "active"})["activeTargets"]
        return {
            target["labels"]["instance"]: target["health"]
            for target in active
            if target["labels"]["job"] == job
        }

    def _get(self, page: str, parameters: dict[str, str]) -> Any:
        url = f"{self.address}/api/v1/{page}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace")
            with_reason = _reason(reason) or f"status {error.code}"
            raise LabError(f"Prometheus refused the question: {with_reason}.") from None
        except NO_ANSWER as error:
            raise LabError(
                f"Prometheus at {self.address} does not answer ({error}); "
                "'make up PROFILE=monitoring' starts it."
            ) from None
        return said["data"]


def _reason(body: str) -> str:
    """Prometheus' own words for what is wrong with an expression."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return ""


def scrape(address: str) -> dict[str, list[Series]]:
    """What a target exposes at ``address``/metrics, by sample name, as Prometheus gets
    it; ``LabError`` if it does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
            return samples(answer.read().decode())
    except NO_ANSWER as error:
        raise LabError(
            f"{address}/metrics does not answer ({error}); 'make ps' shows what runs, "
            "'make up' with its PROFILE starts it again."
        ) from None


def samples(text: str) -> dict[str, list[Series]]:
    """Series by sample name from what a target exposes, in the text format."""
    found: dict[str, list[Series]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(
                Series(dict(sample.labels), float(sample.value))
            )
    return found


def families(text: str) -> set[str]:
    """Names of the metrics that a target exposes and has at least one sample of."""
    return {f.name for f in text_string_to_metric_families(text) if f.samples}


def value_here(name: str, labels: dict[str, str] | None = None) -> float | None:
    """A series of this process; ``None`` if it is not there.

    For ``client.run``, which asks all workers. It stands in the package, since a
    function of a script travels by value with all that it names, and a registry cannot.
    """
    return REGISTRY.get_sample_value(name, labels or {})
