"""Removed, or just not to be seen at the moment?"""

from dagster_exporter.roster import GONE_AFTER, UNKNOWN_LOCATION, Pruning, Roster

GOOD, OTHER = ("good", "lab"), ("other", "lab")


def learn(roster: Roster, *jobs: str, broken: bool = False) -> None:
    if broken:
        roster.learn({}, frozenset({"lab"}))
    else:
        roster.learn({"lab": frozenset(jobs)}, frozenset())


def test_nothing_is_gone_before_the_first_answer() -> None:
    assert Roster().lacks(GOOD) is False


def test_a_broken_location_keeps_its_jobs() -> None:
    roster = Roster()
    learn(roster, "good")
    learn(roster, broken=True)
    assert roster.jobs() == {GOOD}
    assert roster.lacks(GOOD) is False
    learn(roster, "good", "other")
    assert roster.jobs() == {GOOD, OTHER}


def test_a_job_is_gone_after_several_good_answers_without_it() -> None:
    roster = Roster()
    pruning = Pruning(roster)
    learn(roster, "good", "other")
    assert pruning.gone([GOOD, OTHER]) == set()
    for _ in range(GONE_AFTER - 1):
        learn(roster, "good")
        assert pruning.gone([GOOD, OTHER]) == set()
        assert pruning.gone([GOOD, OTHER]) == set()  # the same answer, asked again
    learn(roster, "good")
    assert pruning.gone([GOOD, OTHER]) == {OTHER}


def test_a_job_that_comes_back_in_between_stays() -> None:
    roster = Roster()
    pruning = Pruning(roster)
    for jobs in (["good"], ["good"], ["good", "other"], ["good"], ["good"]):
        learn(roster, *jobs)
        assert pruning.gone([OTHER]) == set()


def test_a_location_that_is_gone_takes_its_jobs_along() -> None:
    roster = Roster()
    pruning = Pruning(roster)
    gone = set()
    for _ in range(GONE_AFTER):
        roster.learn({"elsewhere": frozenset()}, frozenset())
        gone = pruning.gone([GOOD])
    assert gone == {GOOD}


def test_an_unknown_location_is_never_gone() -> None:
    roster = Roster()
    learn(roster, "good")
    assert roster.lacks(("any", UNKNOWN_LOCATION)) is False
