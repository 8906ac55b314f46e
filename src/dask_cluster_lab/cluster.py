"""Connect to the cluster, or to a labelled fallback when there is none.

``connect()`` gives a ``ClusterSession``, which is one of three kinds:

``compose``
    This project's own containers, recognised by a marker in their environment. Ours to
    break: lessons kill, pause and fill its workers.
``remote``
    Any other scheduler that ``DASK_SCHEDULER_ADDRESS`` names. Lessons leave its workers
    alone unless ``DASK_LAB_ALLOW_DISRUPTION=1`` is set.
``local``
    No scheduler answered: a ``LocalCluster`` of threads in this very process.
"""

import contextlib
import functools
import logging
import os
import socket
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dask_cluster_lab.errors import LabError, UsageError
from dask_cluster_lab.probe import (
    Address,
    Probe,
    parse_address,
    probe,
    scheduler_address,
)
from dask_cluster_lab.wire import NoWire, WireMeter

if TYPE_CHECKING:
    from distributed import Client

MARKER = "DASK_LAB_CLUSTER"
DASHBOARD = "DASK_LAB_DASHBOARD"
OBJECT_STORE = "DASK_LAB_OBJECT_STORE"
PROMETHEUS = "DASK_LAB_PROMETHEUS"
PUSHGATEWAY = "DASK_LAB_PUSHGATEWAY"
DAGSTER = "DASK_LAB_DAGSTER"
DAGSTER_EXPORTER = "DASK_LAB_DAGSTER_EXPORTER"
# Names of services in compose.yml, and so in the containers' DNS.
WORKER_SERVICE = "worker"
OBJECT_STORE_SERVICE = "object-store"
PROMETHEUS_SERVICE = "prometheus"
PUSHGATEWAY_SERVICE = "pushgateway"
DAGSTER_SERVICE = "dagster-webserver"
DAGSTER_DAEMON_SERVICE = "dagster-daemon"
DAGSTER_EXPORTER_SERVICE = "dagster-exporter"
STAND_IN_SETTINGS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_DEFAULT_REGION",
)
STARTING_SECONDS = 5.0
"""How long a published port may hang up before a scheduler listens behind it."""
ANSWER_SECONDS = 10.0

Kind = Literal["compose", "remote", "local"]


@dataclass(frozen=True)
class WorkerInfo:
    """One worker as the scheduler knows it."""

    address: str
    host: str
    threads: int
    memory_limit: int
    """Bytes; 0 if the worker has no limit."""
    nanny: str
    """Address of the process that restarts it; empty if there is none."""
    status: str
    resources: dict[str, float] = field(default_factory=dict)
    """What it declares beside threads and memory, by name."""


@dataclass
class ClusterSession:
    """A connected client and what is known about the other end."""

    client: "Client"
    kind: Kind
    address: str
    """The scheduler's address as given, also when the client goes through the meter."""
    label: str
    """Two lines for people: what this session is connected to."""
    name: str = ""
    """The Compose project (kind ``compose`` only)."""
    wire: WireMeter | NoWire = field(default_factory=NoWire)
    _closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def may_disrupt(self) -> bool:
        """Whether a lesson may kill, retire, pause or flood workers here."""
        allowed = os.environ.get("DASK_LAB_ALLOW_DISRUPTION") == "1"
        return self.kind == "compose" or (self.kind == "remote" and allowed)

    @property
    def dashboard(self) -> str:
        """The dashboard's root as seen from here, without a slash at the end.

        The scheduler advertises a link made of its own port; a published port can be
        another. The containers of this project carry the published address with them.
        """
        if self.kind == "local":
            services = self.client.scheduler_info()["services"]
            return f"http://127.0.0.1:{services['dashboard']}"
        published = None
        if self.kind == "compose":
            published = self.client.run_on_scheduler(os.getenv, DASHBOARD)
        return str(published or self.client.dashboard_link.removesuffix("/status"))

    @functools.cached_property
    def object_store(self) -> str:
        """Endpoint of an S3 object store as seen from here; empty if there is none.

        This project's own stand-in, if its profile is up; elsewhere the one that
        ``AWS_ENDPOINT_URL`` names, if every worker has that variable as well.
        """
        if self.kind != "compose":
            theirs = self.client.run(os.getenv, "AWS_ENDPOINT_URL").values()
            return os.environ.get("AWS_ENDPOINT_URL", "") if all(theirs) else ""
        return self._published(OBJECT_STORE_SERVICE, OBJECT_STORE)

    @functools.cached_property
    def prometheus(self) -> str:
        """Address of this project's Prometheus as seen from here; empty if not up."""
        return self._published(PROMETHEUS_SERVICE, PROMETHEUS)

    @functools.cached_property
    def pushgateway(self) -> str:
        """Address of this project's Pushgateway as seen from here; empty if not up."""
        return self._published(PUSHGATEWAY_SERVICE, PUSHGATEWAY)

    @functools.cached_property
    def dagster(self) -> str:
        """Address of this project's Dagster as seen from here; empty if not up."""
        return self._published(DAGSTER_SERVICE, DAGSTER)

    @functools.cached_property
    def dagster_exporter(self) -> str:
        """Address of the exporter in front of that Dagster; empty if not up."""
        return self._published(DAGSTER_EXPORTER_SERVICE, DAGSTER_EXPORTER)

    def _published(self, service: str, variable: str) -> str:
        """Where a service beside scheduler and workers is published; empty if not up.

        The scheduler's container carries the published address in ``variable``.
        """
        if self.kind != "compose":
            return ""
        try:  # the containers' DNS knows it while it runs
            self.client.run_on_scheduler(socket.gethostbyname, service)
        except OSError:
            return ""
        return str(self.client.run_on_scheduler(os.getenv, variable) or "")

    @contextlib.contextmanager
    def object_store_environment(self) -> Iterator[None]:
        """This process can call the object store by its environment, as workers can.

        For this project's own stand-in that takes its endpoint as seen from here and
        the keys that it gave to the workers, instead of whatever the user has for other
        stores; all of that is undone at the end. Elsewhere the environment is the
        user's and stays. Raises ``LabError`` if the store cannot be used.
        """
        from botocore.exceptions import BotoCoreError

        remedy = "the AWS_ variables of client and workers say which and with what keys"
        if self.kind == "compose":
            remedy = "'make up PROFILE=storage' mends it"
        before = dict(os.environ)
        if self.kind == "compose":
            for name in [name for name in before if name.startswith("AWS_")]:
                del os.environ[name]
            for name in STAND_IN_SETTINGS:
                os.environ[name] = str(self.client.run_on_scheduler(os.getenv, name))
            os.environ["AWS_ENDPOINT_URL"] = self.object_store
            os.environ["AWS_CONFIG_FILE"] = os.devnull
            os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
            os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
        try:
            yield
        except (BotoCoreError, PermissionError) as error:
            raise LabError(
                f"the object store at {self.object_store} cannot be used "
                f"({type(error).__name__}: {error}); {remedy}."
            ) from None
        finally:
            os.environ.clear()
            os.environ.update(before)

    def workers(self) -> list[WorkerInfo]:
        """All workers, sorted by address."""
        return describe_workers(self.client)

    def close(self) -> None:
        """Close the client, and the fallback cluster with it; never raises or hangs."""
        silence_logs()
        with contextlib.suppress(Exception):
            self.client.close(timeout=2)
        with contextlib.suppress(Exception):
            self._closing.close()

    def __enter__(self) -> "ClusterSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def silence_logs() -> None:
    """For the end of a session: what still runs is cut off, and would complain."""
    for name in list(logging.root.manager.loggerDict):  # some have a level of their own
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def describe_workers(client: "Client") -> list[WorkerInfo]:
    """Every worker that the scheduler knows, however many, sorted by address.

    Asks the scheduler itself: ``client.scheduler_info()`` returns an attribute that a
    callback of the client replaces every two seconds by one without workers.
    """
    scheduler: Any = client.scheduler
    workers = client.sync(scheduler.identity, n_workers=-1)["workers"]
    return [
        WorkerInfo(
            address=address,
            host=info["host"],
            threads=info["nthreads"],
            memory_limit=info["memory_limit"] or 0,
            nanny=info["nanny"] or "",
            status=info["status"],
            resources=dict(info["resources"]),
        )
        for address, info in sorted(workers.items())
    ]


def connect(
    address: str | None = None,
    *,
    allow_fallback: bool = True,
    meter_wire: bool = False,
    seconds: float = 30,
    quiet: bool = False,
) -> ClusterSession:
    """Connect to the scheduler, or start the labelled fallback if none answers.

    ``address`` defaults to ``DASK_SCHEDULER_ADDRESS``, then to this machine's loopback.
    With ``meter_wire`` the client is connected through a relay that counts bytes
    (``session.wire``). Waits up to ``seconds`` for the workers that are expected.
    Prints what it is connected to unless ``quiet``.

    Raises ``UsageError`` if the address is malformed or something that is no scheduler
    answers there, ``LabError`` if the cluster has no workers, or if nothing answers and
    ``allow_fallback`` is false.
    """
    target = parse_address(address) if address is not None else scheduler_address()
    answer = _patient_probe(target)
    if answer.is_dask:
        session = _connect_to(target, meter_wire, seconds)
    elif answer.state in ("closed", "silent", "other"):
        raise UsageError(
            f"{answer.reason}; give the scheduler's own port (8786 by default)."
        )
    elif allow_fallback:
        session = _start_fallback(answer)
    else:
        raise LabError(f"{answer.reason}; 'make up' starts the cluster.")
    if not quiet:
        try:
            print(session.label, flush=True)
        except BaseException:  # nobody reads this: the caller gets nothing to close
            session.close()
            raise
    return session


def _patient_probe(target: Address) -> Probe:
    """Probe; again where a scheduler may be starting behind its port, or busy."""
    deadline = time.monotonic() + STARTING_SECONDS
    answer = probe(target)
    if answer.state == "silent":
        return probe(target)
    while answer.state == "closed" and time.monotonic() < deadline:
        time.sleep(0.2)
        answer = probe(target)
    return answer


def _connect_to(target: Address, meter_wire: bool, seconds: float) -> ClusterSession:
    from distributed import Client

    wire: WireMeter | NoWire = NoWire()
    client_address = str(target)
    if meter_wire:
        wire = WireMeter(target.host, target.port)
        client_address = f"{target.scheme}://127.0.0.1:{wire.local_port}"
    closing = contextlib.ExitStack()
    closing.callback(wire.close)
    # What happens to the connection is told once, by whoever uses the session.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        _require_scheduler(target)
        client = Client(client_address, timeout=ANSWER_SECONDS)
    except BaseException:
        closing.close()
        raise
    session = ClusterSession(
        client, "remote", str(target), "", wire=wire, _closing=closing
    )
    try:
        session.name = client.run_on_scheduler(os.getenv, MARKER) or ""
        session.kind = "compose" if session.name else "remote"
        _wait_for_workers(session, seconds)
        session.label = _label(session)
    except BaseException:
        session.close()
        raise
    return session


def ask_identity(address: str, seconds: float) -> dict[str, Any]:
    """How the Dask process at ``address`` describes itself and its workers.

    On a connection and an event loop of its own, so that the answer does not depend on
    a client: not on whether it is open, and not on what its event loop is busy with.
    Raises ``OSError`` (``TimeoutError`` after ``seconds``) if there is no answer.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from distributed import rpc
    from distributed.security import Security

    async def ask() -> dict[str, Any]:
        arguments = Security().get_connection_args("client")
        async with rpc(address, connection_args=arguments) as other:
            return await asyncio.wait_for(other.identity(), seconds)

    # In a thread of its own, because a notebook runs an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, ask()).result()


def _require_scheduler(target: Address) -> None:
    """Workers and nannies greet like schedulers do; ask who it is."""
    try:
        role = ask_identity(str(target), ANSWER_SECONDS)["type"]
    except Exception as error:  # no answer, or one that is not Dask's
        raise LabError(
            f"the scheduler at {target} greets but does not answer "
            f"({type(error).__name__}); 'make restart' brings it back."
        ) from error
    if role != "Scheduler":
        raise UsageError(f"what answers at {target} is a Dask {role}, not a scheduler.")


def _expected_workers(session: ClusterSession) -> set[str]:
    """Hosts whose workers should register: the running worker containers, where ours.

    Not their number alone: one that is gone may still be registered for a moment.

    The containers' DNS knows them by the name of their service, so this needs no Docker
    on the client's side and follows every ``make scale``.
    """
    if session.kind == "remote":
        return set()
    try:
        answer = session.client.run_on_scheduler(
            socket.gethostbyname_ex, WORKER_SERVICE
        )
    except OSError:
        raise LabError(
            f"the cluster at {session.address} has a scheduler but no running worker; "
            "'make up' brings the workers back."
        ) from None
    return set(answer[2])


def _wait_for_workers(session: ClusterSession, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        expected = _expected_workers(session)
        present = {worker.host for worker in session.workers()}
        if present and present >= expected:
            return
        if time.monotonic() > deadline:
            there, all_ = len(present & expected), max(1, len(expected))
            raise LabError(
                f"{there} of {all_} workers registered at {session.address} "
                f"within {seconds:g} s; 'make logs' says why, 'make up' mends it."
            )
        time.sleep(0.1)


def _label(session: ClusterSession) -> str:
    workers = session.workers()
    counts = {
        "worker": len(workers),
        "host": len({worker.host for worker in workers}),
        "thread": sum(worker.threads for worker in workers),
    }
    some = [f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items()]
    size = f"{some[0]} on {some[1]}, {some[2]}"
    if session.kind == "compose":
        return f"Compose cluster {session.name!r} at {session.address}\n{size}"
    return f"Remote scheduler at {session.address}\n{size}"


def _start_fallback(answer: Probe) -> ClusterSession:
    import dask
    from distributed import Client, LocalCluster

    closing = contextlib.ExitStack()
    scratch = closing.enter_context(
        tempfile.TemporaryDirectory(prefix="dask-cluster-lab-")
    )
    # The configuration, since a scheduler has no argument for its own scratch space.
    with dask.config.set({"temporary-directory": scratch}):
        cluster = LocalCluster(
            processes=False,
            n_workers=2,
            threads_per_worker=2,
            memory_limit="1.5GiB",
            dashboard_address="127.0.0.1:0",
        )
    closing.callback(cluster.close, timeout=5)
    reason = textwrap.fill(
        f"LocalCluster, in this process, as a fallback: {answer.reason}.", 80
    )
    label = (
        f"{reason}\n"
        "'make up' starts the real cluster; n/a marks what this one cannot show."
    )
    return ClusterSession(
        Client(cluster, timeout=ANSWER_SECONDS),
        "local",
        cluster.scheduler_address,
        label,
        _closing=closing,
    )
