"""Ends a lesson that would otherwise wait for ever, and says what it waited for.

Calls into Dask have no deadline of their own: with a frozen worker or scheduler a
``gather`` blocks for good. A thread beside the lesson watches the clock, the scheduler
and every worker's heartbeat, on a connection of its own, and interrupts the main thread
with a sentence when one of them fails.
"""

import contextlib
import signal
import threading
import time
from typing import Any

from dask_cluster_lab.cluster import ClusterSession, ask_identity
from dask_cluster_lab.errors import LabError

LOOK_EVERY = 3.0
ANSWER_SECONDS = 5.0
INTERRUPT_AGAIN = 10.0
SILENT_SECONDS = 20.0
"""A healthy worker sends two heartbeats a second, a busy one still one in a few."""


class Watchdog(threading.Thread):
    """Watches ``session``; after ``seconds`` in all the lesson is over in any case."""

    def __init__(self, session: ClusterSession, seconds: float) -> None:
        super().__init__(name="lesson-watchdog", daemon=True)
        self.session = session
        self.seconds = seconds
        self._verdict: LabError | None = None
        self._stopped = threading.Event()
        self._heartbeats: dict[str, tuple[float, float]] = {}
        self._answered = time.monotonic()

    def start(self) -> None:
        # What a shell script starts with & is born deaf to this signal.
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        super().start()

    def run(self) -> None:
        deadline = time.monotonic() + self.seconds
        while not self._stopped.wait(
            min(LOOK_EVERY, max(deadline - time.monotonic(), 0))
        ):
            trouble = self._trouble()
            if trouble is None and time.monotonic() >= deadline:
                trouble = (
                    f"the lesson did not end within {self.seconds:g} s; "
                    "'make logs' may say why."
                )
            if trouble and not self._stopped.is_set():
                self._verdict = LabError(trouble)
                self._interrupt()
                return

    def _interrupt(self) -> None:
        """Interrupt the main thread; again if that was swallowed, as by a finalizer."""
        main = threading.main_thread().ident
        while main is not None and not self._stopped.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            self._stopped.wait(INTERRUPT_AGAIN)

    def stop(self, error: BaseException | None) -> LabError | None:
        """End the watch; the verdict, also where ``error`` is the cluster's fault."""
        self._stopped.set()
        if self._verdict is not None or error is None:
            return self._verdict
        remote = isinstance(error, Exception) and self.session.kind != "local"
        if remote and (self._lost_connection(error) or self._identity() is None):
            return LabError(self._gone())
        return None

    def _trouble(self) -> str | None:
        """What is wrong now, or ``None``."""
        if self.session.kind == "local":
            return None
        now = time.monotonic()
        identity = self._identity()
        if identity is None:
            return self._gone() if now - self._answered > SILENT_SECONDS / 2 else None
        self._answered = now
        workers = identity["workers"]
        for address, info in workers.items():
            seen = info["last_seen"]
            if self._heartbeats.get(address, (None, now))[0] != seen:
                self._heartbeats[address] = (seen, now)
            if now - self._heartbeats[address][1] > SILENT_SECONDS:
                return (
                    f"worker {address} has sent no heartbeat for {SILENT_SECONDS:g} s: "
                    "it is frozen or cut off; 'make ps' shows the containers, "
                    "'make restart' brings them back."
                )
        self._heartbeats = {a: h for a, h in self._heartbeats.items() if a in workers}
        return None

    def _gone(self) -> str:
        return (
            f"the scheduler at {self.session.address} was lost during the lesson; "
            "'make ps' shows what runs, 'make up' brings the cluster back."
        )

    def _identity(self) -> dict[str, Any] | None:
        """How the scheduler describes itself and its workers; ``None`` if no answer."""
        with contextlib.suppress(Exception):
            return ask_identity(self.session.address, ANSWER_SECONDS)
        return None

    @staticmethod
    def _lost_connection(error: BaseException) -> bool:
        """Whether Dask says so; the scheduler may be back by now, without its state."""
        return "scheduler-connection-lost" in str(error)
