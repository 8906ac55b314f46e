"""Grafana's dashboards are what their code says, and say how to read them."""

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest
from compose_cluster import ROOT
from conftest import leave_out
from monitoring_files import dashboards, load, panels

if TYPE_CHECKING:
    from types import ModuleType

GRAFANA = ROOT / "monitoring" / "grafana"
DASHBOARDS = dashboards()
WIDTH = 24  # of Grafana's grid
EVERY = pytest.mark.parametrize("name", sorted(DASHBOARDS))


@pytest.fixture(scope="module")
def code() -> "ModuleType":
    """The module that builds them."""
    if importlib.util.find_spec("grafana_foundation_sdk") is None:
        leave_out("the dependency group monitoring is missing", "'make test' brings it")
    import dashboards

    return dashboards


def source() -> dict[str, Any]:
    """The data source that Grafana is provisioned with."""
    found = load(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")
    (one,) = found["datasources"]
    return dict(one)


def test_committed_files_are_those_that_the_code_writes(code: "ModuleType") -> None:
    assert set(DASHBOARDS) == set(code.DASHBOARDS)
    for name, dashboard in DASHBOARDS.items():
        assert json.loads(code.render(name)) == dashboard, "run 'make dashboards'"
        path = GRAFANA / "dashboards" / f"{name}.json"
        assert path.read_text(encoding="utf-8") == code.render(name)


def test_files_of_dashboards_that_are_gone_are_removed(
    code: "ModuleType", tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "FOLDER", tmp_path / "new")
    code.main()
    (tmp_path / "new" / "gone.json").write_text("{}")
    code.main()
    written = {path.stem for path in (tmp_path / "new").iterdir()}
    assert written == set(code.DASHBOARDS)


def test_grafana_reads_the_folder_that_the_code_writes() -> None:
    (provider,) = load(GRAFANA / "provisioning/dashboards/lab.yml")["providers"]
    compose = (ROOT / "compose.yml").read_text(encoding="utf-8")
    assert f"./monitoring/grafana/dashboards:{provider['options']['path']}:" in compose


def test_uids_and_titles_are_unique() -> None:
    assert DASHBOARDS.keys() >= {"cluster", "pipeline"}
    assert {name: one["uid"] for name, one in DASHBOARDS.items()} == {
        name: name for name in DASHBOARDS
    }
    titles = [one["title"] for one in DASHBOARDS.values()]
    assert len(set(titles)) == len(titles)


@EVERY
def test_panel_ids_and_titles_are_unique(name: str) -> None:
    found = list(panels(DASHBOARDS[name]))
    assert len({panel["id"] for panel in found}) == len(found) > 3
    assert len({panel["title"] for panel in found}) == len(found)


@EVERY
def test_panels_say_how_to_read_them(name: str) -> None:
    assert DASHBOARDS[name]["description"]
    for panel in panels(DASHBOARDS[name]):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert len(panel["description"].split()) >= 8
        assert panel["fieldConfig"]["defaults"]["unit"]


@EVERY
def test_panels_ask_the_provisioned_source(name: str) -> None:
    provisioned = {"type": source()["type"], "uid": source()["uid"]}
    for panel in panels(DASHBOARDS[name]):
        assert panel["datasource"] == provisioned
        assert panel["targets"]
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names)
        for target in panel["targets"]:
            assert target["datasource"] == provisioned
            assert target["refId"]
            assert target["expr"].strip()
            assert target["legendFormat"]


@EVERY
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(DASHBOARDS[name]):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (place["x"] + column, place["y"] + row)
            for column in range(place["w"])
            for row in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@EVERY
def test_nothing_depends_on_the_number_of_workers(name: str) -> None:
    for panel in panels(DASHBOARDS[name]):
        for target in panel["targets"]:
            assert 'instance="' not in target["expr"]
