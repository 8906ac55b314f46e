"""What is on the other end of the socket?

What:  asks the scheduler which workers it has, runs one task to see where it lands,
       looks for the dashboard, and finds out what a Client does to a bare compute().
Why:   a LocalCluster and a real one look the same from Python. What differs is where
       things are: other processes, other hosts, memory that does not add up.
Needs: any cluster; runs a handful of tiny tasks; leaves nothing behind.
Run:   make run EXAMPLE=0101_connect
"""

import os
import socket
import urllib.request

import dask
from distributed import get_worker, wait

from dask_cluster_lab import Lesson, connect, run


def where_am_i() -> tuple[str, int, bool]:
    """Host name, process id, and whether a Dask worker runs this."""
    try:
        on_worker = bool(get_worker())
    except ValueError:  # raised outside of tasks
        on_worker = False
    return socket.gethostname(), os.getpid(), on_worker


def http_get(url: str) -> str:
    """Status and body of an HTTP GET, or what went wrong within five seconds."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return f"{response.status} {response.read(20).decode()}"
    except OSError as error:  # refused, timed out, an HTTP error status
        return str(error)


def main() -> None:
    """Tell the story."""
    with connect() as session, Lesson(session) as lesson:
        client = session.client

        lesson.section("The scheduler's own list of workers")
        workers = session.workers()
        hosts = client.run(socket.gethostname)
        lesson.table(
            ["worker", "host name", "threads", "limit, GiB", "nanny"],
            [
                (
                    w.address,
                    hosts[w.address],
                    w.threads,
                    w.memory_limit / 2**30,
                    bool(w.nanny),
                )
                for w in workers
            ],
        )
        lesson.check(
            "every worker answers, and each is on a host of its own",
            len(set(hosts.values())) == len(workers),
            f"{len(workers)} workers, {len(set(hosts.values()))} host names",
            needs="containers",
        )

        lesson.section("Capacity is two numbers, and only one of them adds up")
        threads = client.run(lambda dask_worker: dask_worker.state.nthreads)
        limits = {worker.address: worker.memory_limit / 2**30 for worker in workers}
        slots, memory = sum(threads.values()), sum(limits.values())
        result = client.submit(bytes, 1_000_000, pure=False)
        wait(result)
        holders = client.who_has()[result.key]
        limit = max(limits[holder] for holder in holders)
        print(f"{slots} slots: so many tasks run at once, on whichever worker is free.")
        print(f"{memory:.1f} GiB in all. But a result or a chunk lives on one")
        print("worker, so the limit that counts is the single worker's.")
        lesson.check(
            "threads add up: the workers' own threads are the scheduler's slots",
            slots == sum(w.threads for w in workers),
            f"{' + '.join(str(n) for n in threads.values())} = {slots}",
        )
        lesson.check(
            "memory does not pool: a result has one worker, whose limit is not the sum",
            len(holders) == 1 and (limit < memory or not limit),
            f"{limit:.1f} of {memory:.1f} GiB for what is on {len(holders)} worker",
            needs="two workers",
        )

        lesson.section("One task, and where it ran")
        here = where_am_i()
        there = client.submit(where_am_i, pure=False).result()
        lesson.table(
            ["who", "host", "process", "Dask worker"],
            [
                ("this client", here[0], f"pid {here[1]}", here[2]),
                ("the task", there[0], f"pid {there[1]}", there[2]),
            ],
        )
        lesson.check(
            "the task ran in another process than the client",
            there[:2] != here[:2],
            f"host {there[0]}, pid {there[1]}",
            needs="processes",
        )
        lesson.check(
            "the task ran on another host than the client",
            there[0] != here[0] and there[0] in hosts.values(),
            f"{there[0]} is in the table above, {here[0]} is not",
            needs="containers",
        )

        lesson.section("The dashboard: the advertised link and the one that works")
        advertised = client.dashboard_link
        print(f"The scheduler advertises {advertised}")
        print(f"From here it is          {session.dashboard}/status")
        print("The first is made of the scheduler's own port. Where a mapping changes")
        print(
            "that, or behind an ingress, it leads nowhere, or to another cluster. Then"
        )
        print("publish the port, and tell people its address (Dask's setting:")
        print("distributed.dashboard.link).")
        health = http_get(f"{session.dashboard}/health")
        lesson.check(
            "the dashboard answers over HTTP",
            health == "200 ok",
            f"GET /health gave {health!r}",
        )

        lesson.section("A Client is the default for the whole process, until it closes")
        task = dask.delayed(where_am_i, pure=False)
        during = task().compute()
        client.close()
        after = task().compute()
        lesson.table(
            ["a bare compute()", "ran on a Dask worker", "in this process"],
            [
                ("while the client is open", during[2], during[:2] == here[:2]),
                ("after client.close()", after[2], after[:2] == here[:2]),
            ],
        )
        lesson.check(
            "while a client is open, a bare compute() runs on the cluster",
            during[2],
            f"it ran on host {during[0]}, pid {during[1]}",
        )
        lesson.check(
            "closing the client gives that up",
            not after[2] and after[:2] == here[:2],
            f"it ran on host {after[0]}, pid {after[1]}, which is this process",
        )


if __name__ == "__main__":
    run(main)
