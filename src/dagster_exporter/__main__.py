"""``dagster-exporter``, and ``python -m dagster_exporter``."""

import asyncio
import os
import sys
from collections.abc import Sequence

from dagster_exporter.settings import SettingsError, read_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to stop; 0 stopped, 2 a setting that cannot be meant."""
    try:
        settings = read_settings(
            sys.argv[1:] if arguments is None else arguments, os.environ
        )
        # After the settings: whoever asks for --help needs no HTTP client.
        _import_lean()
        from dagster_exporter import log
        from dagster_exporter.exporter import Exporter

        log.set_up(settings.headers.values())
        exporter = Exporter(settings)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f"error: {error.name} is missing; install 'dask-cluster-lab[exporter]'.",
            file=sys.stderr,
        )
        return 2
    asyncio.run(exporter.run())
    return 0


def _import_lean() -> None:
    """Import httpx without its command line and without trio, where they are installed.

    Neither is used, and together they take a sixth of the memory.
    """
    unused = {"click", "trio"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(unused))  # type: ignore[arg-type]
    try:
        import httpx  # noqa: F401
    finally:
        for name in unused:
            del sys.modules[name]


if __name__ == "__main__":
    sys.exit(main())
