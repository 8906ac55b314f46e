"""Whose file system is it?

What:  asks every process which files it sees; lets workers write one store to a path
       that each has to itself, and one to a volume that they share; reads both back.
Why:   a path means another place in each container. Writing to the wrong one raises
       no error, and a store whose data is elsewhere reads as NaN.
Needs: any cluster; writes a few kilobytes to /tmp and, on the Compose cluster, to the
       shared volume /data; removes them.
Run:   make run EXAMPLE=0302_shared_storage
"""

import contextlib
import os
import shutil
import socket
import tempfile
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
import zarr

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.lesson import Need

N_TILES = 24
DEPTHS = np.arange(1.0, N_TILES + 1)  # metres


def look(path: str) -> tuple[str, str, bool]:
    """Host and working directory of this process, and whether it sees ``path``."""
    return socket.gethostname(), os.getcwd(), Path(path).exists()


def write_note(path: str) -> None:
    """Write a small text file, and make its folder."""
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("12 m\n")


def write_part(path: str, part: int, parts: int) -> float:
    """Write one chunk of a zarr array, made if it is missing; the value read back."""
    array: Any = zarr.open_array(
        path, mode="a", shape=(parts,), chunks=(1,), dtype="f8", fill_value=np.nan
    )
    array[part] = float(part)
    return float(array[part])


def write_survey(path: str) -> None:
    """Write the whole survey, one chunk for each tile."""
    survey = xr.Dataset({"depth": ("tile", DEPTHS)})
    chunks = {"depth": {"chunks": (1,)}}
    survey.to_zarr(path, encoding=chunks, consolidated=False)


def read_survey(path: str) -> np.ndarray:
    """All depths of the store, metres."""
    with xr.open_dataset(path, engine="zarr", consolidated=False, chunks=None) as back:
        return back["depth"].values


def wrong_values(path: str) -> int:
    """The read-back check: how many values are not what was written."""
    return int((read_survey(path) != DEPTHS).sum())


def chunks_in(path: str) -> int:
    """How many chunks of the store this process sees."""
    files = [file for file in Path(path).rglob("*") if file.is_file()]
    return sum(file.name != "zarr.json" for file in files)  # which is metadata


def remove(paths: list[str]) -> None:
    """Remove these folders where they exist."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def left_of(paths: list[str]) -> int:
    """How many of these folders exist."""
    return sum(Path(path).exists() for path in paths)


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        Lesson(session) as lesson,
        contextlib.ExitStack() as undo,
    ):
        client = session.client
        addresses = [worker.address for worker in session.workers()]
        # In /tmp, which the containers have as well: the same path, another place.
        folder = undo.enter_context(
            tempfile.TemporaryDirectory(prefix="dask-cluster-lab-", dir="/tmp")
        )
        paths = [folder, f"/data/{Path(folder).name}"]
        undo.callback(client.run_on_scheduler, remove, paths)
        undo.callback(client.run, remove, paths)

        def everyone(function: Any, *args: Any) -> dict[str, Any]:
            """What it returns here, in the scheduler and in every worker."""
            return {
                "client": function(*args),
                "scheduler": client.run_on_scheduler(function, *args),
                **client.run(function, *args),
            }

        def on_workers(answers: dict[str, Any]) -> list[Any]:
            return [answers[address] for address in addresses]

        lesson.section("A file that the client has just written")
        write_note(f"{folder}/note.txt")
        views = everyone(look, f"{folder}/note.txt")
        lesson.table(
            ["who", "host", "working directory", "sees it"],
            [
                (who, host, "the client's" if cwd == os.getcwd() else cwd, sees)
                for who, (host, cwd, sees) in views.items()
            ],
        )
        print("A relative path starts at the working directory of whoever opens it.")
        seeing = [who for who, (*_, sees) in views.items() if sees]
        together = len(seeing) == len(views)
        if together:
            print("Here all have one file system: nothing that follows can go wrong.")
        apart: Need | None = None if seeing == ["client"] else "containers"
        lesson.check(
            "the client sees it, and nobody else",
            seeing == ["client"],
            f"seen by {len(seeing)} of {len(views)}: {', '.join(seeing)}",
            needs=apart,
        )

        lesson.section("Each worker writes its part of 'the same' store")
        store = f"{folder}/parts.zarr"
        n_parts = len(addresses)
        if together:
            print("One after the other, to the same path.")
        else:
            print("One after the other, to one path: another place in each container.")
        read_back = [
            client.submit(
                write_part, store, part, n_parts, workers=[address], pure=False
            ).result()
            for part, address in enumerate(addresses)
        ]
        chunks = everyone(chunks_in, store)
        lesson.table(["who", f"chunks of {n_parts}"], chunks.items())
        lesson.check(
            "every write succeeds, and its writer reads it back",
            read_back == list(range(n_parts)),
            f"{n_parts} writes, {len(read_back)} values read back, no error",
        )
        lesson.check(
            "each worker has its own part only, the client has none",
            set(on_workers(chunks)) == {1} and not chunks["client"],
            f"of {n_parts}, a worker has at most {max(on_workers(chunks))}, the client "
            f"{chunks['client']}",
            needs="two workers" if n_parts == 1 else apart,
        )

        lesson.section("The worst of it: no error anywhere, and NaN")
        store = f"{folder}/survey.zarr"
        print("One call of xarray's to_zarr, with a dask array. The client makes the")
        print("store and its metadata, the workers write the chunks.")
        survey = xr.Dataset({"depth": ("tile", da.from_array(DEPTHS, chunks=1))})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            survey.to_zarr(store, consolidated=False)
        chunks = everyone(chunks_in, store)
        lesson.table(
            ["who", f"chunks of {N_TILES}"],
            [(who, f"~{n}" if who in addresses else n) for who, n in chunks.items()],
        )
        lesson.check(
            "all was written, without an error or a warning, and nothing is here",
            sum(on_workers(chunks)) == N_TILES and not chunks["client"] and not caught,
            f"{sum(on_workers(chunks))} of {N_TILES} chunks on the workers, "
            f"{chunks['client']} here, {len(caught)} warnings",
            needs=apart,
        )
        values = read_survey(store)
        lesson.check(
            "the client opens and reads it without an error: a missing chunk is NaN",
            np.isnan(values).all(),
            f"{np.isnan(values).sum()} of {values.size} values are NaN",
            needs=apart,
        )
        wrong = wrong_values(store)
        lesson.check(
            "the read-back check finds out: compare what is read with what was written",
            wrong == N_TILES,
            f"{wrong} of {N_TILES} values are wrong",
            needs=apart,
        )

        lesson.section("A volume that the workers share")
        if session.kind == "compose":
            shared, name = paths[1], "/data"
        else:  # the client's own folder, if it is everybody's; no other is known
            shared, name = folder if together else "", "the folder that all share"
        place: Need = "processes" if shared else "containers"
        sees: dict[str, bool] = {}
        writer, reader, listed, wrong = "", "", [0], N_TILES
        if shared:
            print(f"The scheduler writes a file to {name}. Who sees that one?")
            client.run_on_scheduler(write_note, f"{shared}/shared.txt")
            views = everyone(look, f"{shared}/shared.txt")
            sees = {who: seen for who, (*_, seen) in views.items()}
            lesson.table(["who", "sees it"], sees.items())
            mounted = [address for address in addresses if sees[address]]
            if not mounted:
                raise LabError(f"no worker sees what the scheduler wrote to {name}.")
            writer, reader = mounted[0], mounted[-1]
            store = f"{shared}/shared.zarr"
            client.submit(write_survey, store, workers=[writer], pure=False).result()
            listed = on_workers(client.run(chunks_in, store))
            wrong = client.submit(
                wrong_values, store, workers=[reader], pure=False
            ).result()
        blind = [address for address in addresses if not sees.get(address)]
        lesson.check(
            "every worker sees the file: a mount that is missing shows as one 'no'",
            not blind,
            f"{n_parts - len(blind)} of {n_parts}"
            + "".join(f", not {a}" for a in blind),
            needs=place,
        )
        lesson.check(
            "a store that one worker wrote there is whole for every worker",
            set(listed) == {N_TILES},
            f"the least that one lists is {min(listed)} of {N_TILES} chunks",
            needs=place,
        )
        lesson.check(
            "another worker reads back what was written",
            wrong == 0 and reader != writer,
            f"{writer} wrote, {reader} read, {wrong} of {N_TILES} differ",
            needs=place if n_parts > 1 else "two workers",
        )

        undo.close()
        left = everyone(left_of, paths)
        lesson.check(
            "all of it is removed, everywhere",
            not any(left.values()),
            f"{sum(left.values())} folders left, as {len(left)} processes see it",
        )


if __name__ == "__main__":
    run(main)
