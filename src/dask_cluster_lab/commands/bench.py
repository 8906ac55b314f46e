"""placeholder"""


def bench() -> None:
    """Measure."""
