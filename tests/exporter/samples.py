"""Reading metrics in tests: one number by its name and labels."""

import re
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from dagster_exporter.metrics import Family, render


class Samples:
    """All samples of an exposition."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    @classmethod
    def of(cls, families: Iterable[Family]) -> "Samples":
        """Those of a poll."""
        return cls(render(families).decode())

    def get(self, name: str, **labels: str) -> float | None:
        """The value of exactly this series; ``None`` if there is none."""
        return self._values.get((name, frozenset(labels.items())))

    def total(self, name: str, **labels: str) -> float:
        """The sum of all series with these labels, and any others."""
        return sum(self.series(name, **labels).values())

    def series(
        self, name: str, **labels: str
    ) -> Mapping[frozenset[tuple[str, str]], float]:
        """All series of a name with these labels, and any others."""
        return {
            found: value
            for (known, found), value in self._values.items()
            if known == name and found >= labels.items()
        }

    def names(self) -> set[str]:
        """The names in the TYPE lines."""
        return set(re.findall(r"^# TYPE (\S+)", self.text, flags=re.M))
