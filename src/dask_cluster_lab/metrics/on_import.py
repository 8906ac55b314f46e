"""A counter at the level of a module: the first way that comes to mind, and a trap.

It is there once this module is imported, which on a cluster means: on those workers
that ran a task which imports it, and not on the others. Lesson 0602 shows it.
"""

import sys

from prometheus_client import REGISTRY, Counter

TILES = Counter("survey_on_import_tiles", "Tiles that this worker counted.")


def count(number: int) -> int:
    """A task that counts; whoever runs it has imported this module."""
    TILES.inc()
    return number


def forget() -> None:
    """Undo the import, and with it the counter."""
    REGISTRY.unregister(TILES)
    del sys.modules[__name__]
