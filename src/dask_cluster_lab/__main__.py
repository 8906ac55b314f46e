"""``python -m dask_cluster_lab COMMAND``: what the make targets call."""

import argparse
import os
import signal
import sys
from types import FrameType

from dask_cluster_lab.errors import LabError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dask_cluster_lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run one lesson")
    run.add_argument("example", help="name, file name or unique prefix")
    soak = commands.add_parser("soak", help="run one lesson many times on busy cores")
    soak.add_argument("example", help="name, file name or unique prefix")
    soak.add_argument("--runs", type=int, default=20, help="how often (20)")
    for name, text in {
        "list": "list the lessons",
        "run-all": "run all lessons in order",
        "readme": "write the README's table of lessons",
        "capture": "write the transcripts",
        "bench": "measure the project's own costs",
        "up": "start the cluster",
        "wait": "wait until all workers are registered",
        "restart": "restart the cluster",
        "down": "remove the cluster",
        "ps": "show the containers",
        "logs": "show the containers' logs",
        "dashboard": "open the dashboard",
    }.items():
        commands.add_parser(name, help=text)
    scale = commands.add_parser("scale", help="change the number of workers")
    scale.add_argument("workers", help="how many")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 good, 1 a check or the cluster failed, 2 wrong use."""
    chosen = _parser().parse_args(arguments)
    try:
        _dispatch(chosen)
        sys.stdout.flush()
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        from dask_cluster_lab.lesson import reader_gone

        return reader_gone()
    return 0


def _terminated(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)  # by way of every with and finally


def _dispatch(chosen: argparse.Namespace) -> None:
    from dask_cluster_lab.commands import (
        bench,
        catalogue,
        compose,
        runner,
        soak,
        transcripts,
    )

    match chosen.command:
        case "run":
            lesson = catalogue.find_lesson(chosen.example)
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, str(lesson.path)])
        case "list":
            everything = catalogue.lessons()
            width = max((len(lesson.name) for lesson in everything), default=0)
            for lesson in everything:
                print(f"{lesson.name:<{width}}  {lesson.title}")
        case "readme":
            readme = catalogue.project_root() / "README.md"
            text = catalogue.readme_with_lessons(readme.read_text(encoding="utf-8"))
            readme.write_text(text, encoding="utf-8")
        case "run-all":
            runner.run_all(keep_going=os.environ.get("KEEP_GOING") == "1")
        case "capture":
            transcripts.capture()
        case "bench":
            bench.bench()
        case "soak":
            soak.soak(chosen.example, chosen.runs)
        case "scale":
            compose.scale(compose.worker_count(chosen.workers, "N"))
        case name:
            getattr(compose, name)()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(main())
