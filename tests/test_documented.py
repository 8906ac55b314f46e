"""Nothing that a user can type or set is left out of the README and CONTRIBUTING."""

import re

import pytest
from compose_cluster import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "compose.yml").read_text(encoding="utf-8")

TARGETS = re.findall(r"^([a-z-]+):.*## ", MAKEFILE, flags=re.MULTILINE)
NOBODY_SETS = {
    "UV_VERSION",  # make does, from the client's own uv
    "AWS_CONFIG_FILE",  # the package does, for its own process and the stand-in
    "AWS_SHARED_CREDENTIALS_FILE",
    "NO_PROXY",
}


def variables() -> set[str]:
    """Environment variables that compose.yml and the package read."""
    code = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")
    )
    read = re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', code)
    read += re.findall(r'"([A-Z_]+)" (?:not )?in os\.environ', code)
    return set(read + re.findall(r"\$\{([A-Z_]+)", COMPOSE)) - NOBODY_SETS - {"UV"}


@pytest.mark.parametrize("target", TARGETS)
def test_target_is_documented(target: str) -> None:
    assert re.search(rf"`make {target}\b", README + CONTRIBUTING)


def test_documented_targets_exist() -> None:
    named = set(re.findall(r"`make ([a-z-]+)", README + CONTRIBUTING))
    assert named <= set(TARGETS)
    assert len(named) > 15


def test_variables_are_documented() -> None:
    settings = README.partition("## Settings")[2].partition("## ")[0]
    rows = set(re.findall(r"^\| `([A-Z_]+)` \|", settings, flags=re.MULTILINE))
    assert variables() == rows


def test_ports_are_documented() -> None:
    ports = re.findall(r"127\.0\.0\.1:\$\{(\w+):-(\d+)\}", COMPOSE)
    assert len(ports) == 14  # eight published, and six that the containers are told
    for variable, default in ports:
        assert re.search(rf"`{variable}` \| {default} \|", README)
