"""Errors that are written for people: one sentence, and an exit status."""


class LabError(Exception):
    """Something about the cluster is wrong. The text says what, and what to do next."""

    exit_status = 1


class UsageError(LabError):
    """What the user asked for cannot be meant (a typo, a missing program)."""

    exit_status = 2


class ChecksFailed(LabError):
    """A lesson ended, and at least one of its checks did not hold."""
