"""The labels that metrics may have, each with all its values, declared once.

Every combination of label values is a series of its own, which Prometheus keeps in
memory. So a label is allowed if its values are few and known beforehand. A tile, a file
or a run is neither: it belongs into a log, a trace or a manifest.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import REGISTRY, CollectorRegistry

STAGES = ("ingest", "grid", "validate", "publish")
OUTCOMES = ("ok", "rejected", "error")
DIRECTIONS = ("in", "out")

BOUNDED = {"stage": STAGES, "outcome": OUTCOMES, "direction": DIRECTIONS}
"""Label name to all its values."""

_NUMBERED = re.compile(r"(?<![^\W_])\d+(?![^\W_])")
"""A number that stands for itself, as in ``run_7`` and not as in ``log1p``."""
_STRUCTURAL = {"le", "quantile"}  # of histograms and summaries, by their definition


class UnboundedLabel(ValueError):
    """A label whose values are not declared, or a value that is none of them."""


def register[M: MetricWrapperBase](
    kind: Callable[..., M],
    name: str,
    documentation: str,
    labels: Sequence[str] = (),
    *,
    registry: CollectorRegistry = REGISTRY,
    **options: object,
) -> M:
    """A metric with these labels, every series of it there from the start, at zero.

    A series that appears with its first event has no rate for that event, and its
    absence could mean anything. Raises ``UnboundedLabel`` before anything is registered
    if a label is not in ``BOUNDED``.
    """
    unknown = [label for label in labels if label not in BOUNDED]
    if unknown:
        raise UnboundedLabel(
            f"the metric {name} has the label {unknown[0]!r}, whose values nobody "
            f"declared; the labels of this project are {', '.join(sorted(BOUNDED))}."
        )
    metric = kind(name, documentation, labels, registry=registry, **options)
    if labels:
        for values in itertools.product(*(BOUNDED[label] for label in labels)):
            metric.labels(*values)
    return metric


def unbounded(registry: CollectorRegistry, prefix: str = "survey_") -> list[str]:
    """What in a registry breaks the rule: a sentence for each metric and label.

    Looks at the series that are there, of metrics whose names start with ``prefix``,
    and at the task prefixes that Dask's own metrics have as a label: a key like
    ``run_7`` makes one for each run, and the scheduler never forgets it.
    """
    faults = set()
    for family in registry.collect():
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label == "task_prefix_name" and _NUMBERED.search(value):
                    faults.add(f"{family.name}: the task prefix {value!r} has a number")
                if not family.name.startswith(prefix) or label in _STRUCTURAL:
                    continue
                if label not in BOUNDED:
                    faults.add(f"{family.name}: the label {label!r} is not declared")
                elif value not in BOUNDED[label]:
                    faults.add(
                        f"{family.name}: {value!r} is no declared value of {label!r}"
                    )
    return sorted(faults)


def numbered(prefixes: Iterable[str]) -> list[str]:
    """Task prefixes with a number in them: one series more for each number.

    Only a number that stands for itself: ``log1p`` and ``conv_2d`` are names.
    """
    return sorted(prefix for prefix in prefixes if _NUMBERED.search(prefix))


def count_series(registry: CollectorRegistry, prefix: str = "") -> int:
    """How many series a scrape of this registry has, of metrics with this prefix."""
    return sum(
        len(family.samples)
        for family in registry.collect()
        if family.name.startswith(prefix)
    )
