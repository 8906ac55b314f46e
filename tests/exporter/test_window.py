"""Each event once."""

from dagster_exporter.window import Window


def test_counts_once_and_only_after_the_floor() -> None:
    window: Window[str] = Window(floor=100.0, margin=10.0)
    assert window.take("early", 100.0) is False
    assert window.take("a", 100.5) is True
    assert window.take("a", 100.5) is False


def test_an_event_that_comes_late_within_the_margin_counts() -> None:
    window: Window[str] = Window(100.0, 10.0)
    window.take("a", 150.0)
    window.advance(150.0)
    assert window.cutoff == 140.0
    assert window.take("late", 141.0) is True
    assert window.take("too late", 140.0) is False


def test_an_old_event_that_comes_back_does_not_count_again() -> None:
    window: Window[str] = Window(100.0, 10.0)
    assert window.take("a", 101.0)
    window.advance(200.0)
    assert window.seen == {}
    assert window.take("a", 101.0) is False


def test_a_long_look_back_remembers_its_end_only() -> None:
    window: Window[int] = Window(0.0, 10.0)
    # Newest first, as Dagster gives runs.
    taken = [window.take(second, float(second), 999.0) for second in range(999, 0, -1)]
    assert all(taken)
    assert len(window.seen) == 10
    window.advance(999.0)
    assert not any(window.take(second, float(second)) for second in range(1, 1000))


def test_memory_follows_the_watermark_and_not_the_time() -> None:
    window: Window[int] = Window(0.0, 10.0)
    for second in range(1, 1000):
        window.take(second, float(second))
        window.advance(float(second))
        assert len(window.seen) <= 10
    # Long afterwards nothing new has come: the last ones are still known.
    window.advance(999.0)
    assert set(window.seen) == set(range(990, 1000))


def test_the_watermark_never_goes_back() -> None:
    window: Window[str] = Window(0.0, 10.0)
    window.advance(500.0)
    window.advance(400.0)
    assert window.watermark == 500.0
