"""Each event counted exactly once, from a source that is asked again and again.

The source is asked for what changed after a cutoff. The cutoff trails the newest change
seen (the watermark) by a margin, because a change can become visible late. So events of
the margin are seen again in every poll, and old events can come back when somebody
touches them (tagging a finished run does). Both are told from new ones here.
"""

from collections.abc import Hashable


class Window[Key: Hashable]:
    """Which events were counted already. Times are Unix seconds of the source's clock.

    Nothing that happened at ``floor`` or before is ever counted. Memory follows the
    events of the margin: not the history, and not the time that passes.
    """

    def __init__(self, floor: float, margin: float) -> None:
        self.floor = floor
        self.margin = margin
        self.watermark = floor
        self.seen: dict[Key, float] = {}

    @property
    def cutoff(self) -> float:
        """What happened at this time or before has been counted, or never will be."""
        return max(self.floor, self.watermark - self.margin)

    def copy(self) -> "Window[Key]":
        """Another with the same knowledge."""
        other = Window[Key](self.floor, self.margin)
        other.watermark = self.watermark
        other.seen = dict(self.seen)
        return other

    def take(self, key: Key, happened: float, newest: float = 0.0) -> bool:
        """Whether this event counts now; afterwards it never will again.

        ``newest`` is a time up to which the caller is going to ``advance``. Events
        that this will push out of the margin need not be remembered at all, which
        keeps a long look-back small.
        """
        if happened <= self.cutoff or key in self.seen:
            return False
        if happened > newest - self.margin:
            self.seen[key] = happened
        return True

    def advance(self, newest: float) -> None:
        """Everything up to ``newest`` has been asked for, completely.

        A poll that broke off must not call this: the next one asks for the same again.
        """
        self.watermark = max(self.watermark, newest)
        cutoff = self.cutoff
        old = [key for key, happened in self.seen.items() if happened <= cutoff]
        for key in old:
            del self.seen[key]
