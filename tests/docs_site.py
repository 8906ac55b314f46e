"""The documentation site for tests: built once, strictly, without a network."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from compose_cluster import ROOT

DOCS = ROOT / "docs"
NOWHERE = "http://127.0.0.1:1"


@dataclass(frozen=True)
class Site:
    """A built site."""

    folder: Path

    def page(self, name: str) -> str:
        return (self.folder / f"{name}.html").read_text(encoding="utf-8")

    def pages(self) -> list[Path]:
        """Every page that a person is meant to read."""
        return sorted(
            path
            for path in self.folder.rglob("*.html")
            if path.name not in {"genindex.html", "search.html", "py-modindex.html"}
            and "_static" not in path.parts
        )


def sphinx(source: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    """Build ``source`` as ``make docs`` does; who asks a network gets no answer."""
    proxies = {name: NOWHERE for name in ("http_proxy", "https_proxy", "all_proxy")}
    return subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-W", "-n", "--keep-going"),
            *("-d", str(target.with_name("doctrees")), str(source), str(target)),
        ],
        cwd=source.parent,
        env={**os.environ, **proxies, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def build(folder: Path) -> Site:
    """Build the real site into ``folder``."""
    done = sphinx(DOCS, folder / "html")
    assert done.returncode == 0, done.stdout + done.stderr
    return Site(folder / "html")
