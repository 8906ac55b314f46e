"""Ends a lesson that would otherwise wait for ever, and says what it waited for.

Calls into Dask have no deadline of their own: with a frozen worker or scheduler a
``gather`` blocks for good. A thread beside the lesson watches the clock, the scheduler
and every worker's heartbeat, on a connection of its own, and interrupts the main thread
with a sentence when one of them fails. It uses SIGUSR1, because a program that a script
started in the background ignores SIGINT.
"""

import contextlib
import signal
import threading
import time
from types import FrameType
from typing import Any

from dask_cluster_lab.cluster import ClusterSession, ask_identity, silence_logs
from dask_cluster_lab.errors import LabError

LOOK_EVERY = 3.0
ANSWER_SECONDS = 5.0
SILENT_SECONDS = 20.0
"""A healthy worker sends two heartbeats a second, a busy one still one in a few."""

LOST_WORKER = {"CancelledError", "FutureCancelledError", "KilledWorker"}
"""Names of the errors with which Dask answers for data or a task that died with one."""


class Watchdog(threading.Thread):
    """Watches ``session``; after ``seconds`` in all the lesson is over in any case."""

    def __init__(self, session: ClusterSession, seconds: float) -> None:
        super().__init__(name="lesson-watchdog", daemon=True)
        self.session = session
        self.seconds = seconds
        self._verdict: LabError | None = None
        self._stopped = threading.Event()
        self._ending = threading.Lock()
        self._heartbeats: dict[str, tuple[float, float]] = {}
        self._answered = time.monotonic()
        self._handlers: dict[int, Any] = {}

    def start(self) -> None:
        """Begin the watch; call it from the main thread, which is the one watched."""
        self._handlers = {
            number: signal.signal(number, self._interrupt)
            for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        super().start()

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        silence_logs()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if number in (signal.SIGTERM, signal.SIGHUP):
            raise SystemExit(128 + number)  # by way of every with and finally
        if self._verdict is not None:
            raise self._verdict

    def run(self) -> None:
        """Look every few seconds until stopped (the thread's own loop)."""
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
            if trouble:
                self._bark(trouble)
                return

    def _bark(self, trouble: str) -> None:
        """Interrupt the main thread until it stops the watch.

        Once is not enough: a finalizer can swallow the error, and on the way out a
        ``with`` or ``finally`` of the lesson (the task stream's, or one that puts
        something back) can wait for the same dead end.
        """
        main = threading.main_thread().ident
        while main is not None:
            with self._ending:
                if self._stopped.is_set():
                    return
                self._verdict = LabError(trouble)
                signal.pthread_kill(main, signal.SIGUSR1)
            self._stopped.wait(LOOK_EVERY)

    def stop(self, error: BaseException | None) -> LabError | None:
        """End the watch; the verdict, also where ``error`` is the cluster's fault."""
        with self._ending:
            self._stopped.set()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._verdict is not None or error is None:
            return self._verdict
        remote = isinstance(error, Exception) and self.session.kind != "local"
        if remote and (self._lost_connection(error) or self._identity() is None):
            return LabError(self._gone())
        if remote and type(error).__name__ in LOST_WORKER:
            return LabError(
                f"a worker was lost during the lesson ({type(error).__name__}); "
                "'make ps' shows the containers, 'make up' brings them back."
            )
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
