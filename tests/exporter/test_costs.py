"""The measurement itself, in small: the figures are for ``make bench``."""

from dagster_exporter.costs import exporter_costs


def test_every_figure_is_there() -> None:
    costs = exporter_costs(scrapes=5, histories=(10, 3_000))
    for figures in (costs.scrape_median, costs.scrape_p99):
        assert list(figures) == ["healthy", "frozen", "gone"]
        assert all(seconds > 0 for seconds in figures.values())
    for by_history in (costs.resident, costs.first_poll, costs.later_poll):
        assert list(by_history) == [10, 3_000]
        assert all(figure > 0 for figure in by_history.values())
    # Not a matter of time or luck: what is kept does not grow with the history.
    assert costs.resident[3_000] < 1.2 * costs.resident[10]
