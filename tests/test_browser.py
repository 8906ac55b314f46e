"""Pages in a real browser: the live dashboard, and what lessons keep in ``reports/``.

The browser reaches nothing but this machine's loopback, so whatever a page draws it
draws without the web. The rest of the gate reads pages as text; here they must draw.
"""

import runpy
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from compose_cluster import ROOT, ComposeCluster
from conftest import leave_out
from distributed import Client, LocalCluster, performance_report, wait
from support import eventually

from dask_cluster_lab.reports import tab_titles, write_index
from dask_cluster_lab.stream_plot import save_stream
from dask_cluster_lab.task_stream import Record

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

SECONDS = 60
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
    "--window-size=1200,900",
)
PAGES = runpy.run_path(str(ROOT / "examples" / "0501_dashboard_tour.py"))["PAGES"]
WEB_IS_OFF = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"

LOOK = """
// Bokeh draws into shadow roots, which querySelectorAll does not enter.
function all(root, selector) {
    let found = [...root.querySelectorAll(selector)];
    for (const child of root.querySelectorAll("*"))
        if (child.shadowRoot) found = found.concat(all(child.shadowRoot, selector));
    return found;
}
function colours(canvas) {
    if (!canvas.width || !canvas.height) return 0;
    if (!canvas.checkVisibility({visibilityProperty: true})) return 0;
    const context = canvas.getContext("2d");
    if (!context) return 0;
    const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(data.buffer)).size;
}
const documents = window.Bokeh ? window.Bokeh.documents : [];
const models = documents.flatMap(document => [...document._all_models.values()]);
return {
    idle: documents.length > 0 && documents.every(document => document.is_idle),
    colours: Math.max(0, ...all(document, "canvas").map(colours)),
    cells: all(document, ".slick-cell").length,
    tabs: all(document, ".bk-tab").map(tab => tab.textContent.trim()),
    rows: Math.max(0, ...models.filter(m => m.type == "ColumnDataSource")
        .map(m => m.get_length() ?? 0)),
    text: document.body.innerText,
};
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Chrome"]:
    """A browser of its own, with the web switched off."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        leave_out(
            "chromium or chromedriver is missing",
            "install both (Debian: chromium-driver)",
        )
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(chromium)
    for flag in (*FLAGS, WEB_IS_OFF):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(chromedriver))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_page_load_timeout(SECONDS)
        yield driver
    finally:
        driver.quit()


def look(browser: "Chrome") -> dict[str, Any]:
    """What is on the page now, as a reader would see it."""
    seen: dict[str, Any] = browser.execute_script(LOOK)
    return seen


def open_page(browser: "Chrome", url: str) -> None:
    console(browser)  # what an earlier page wrote
    browser.get(url)


def console(browser: "Chrome") -> list[dict[str, Any]]:
    """What was written to the browser's console since this was asked last."""
    entries: list[dict[str, Any]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return entries


def complaints(browser: "Chrome") -> list[str]:
    """Errors on the browser's console; that a page has no icon is none."""
    return [
        entry["message"]
        for entry in console(browser)
        if entry["level"] == "SEVERE" and "favicon" not in entry["message"]
    ]


@pytest.fixture(scope="module")
def busy_client(shared_cluster: ComposeCluster) -> Iterator[Client]:
    """A client whose cluster has run something, moved data, and still holds it."""
    with shared_cluster.client() as client:
        workers = sorted(client.nthreads())
        blocks = [
            client.submit(bytes, 2_000_000, workers=[workers[0]], pure=False)
            for _ in range(4)
        ]
        sizes = client.map(len, blocks, workers=[workers[1]], pure=False)
        slow = client.map(time.sleep, [0.1] * 20, pure=False)
        client.gather([*sizes, *slow])
        yield client


@pytest.mark.compose
@pytest.mark.parametrize("page", PAGES)
def test_dashboard_page_draws(
    page: str, browser: "Chrome", shared_cluster: ComposeCluster, busy_client: Client
) -> None:
    """It draws numbers that came after it was opened, without an error."""
    open_page(browser, f"http://127.0.0.1:{shared_cluster.dashboard_port}/{page}")
    seen: dict[str, Any] = {}

    def drawn() -> bool:
        seen.update(look(browser))
        return seen["rows"] > 0 and (seen["colours"] > 1 or seen["cells"] > 0)

    eventually(drawn, f"{page} draws: {seen}", SECONDS)
    assert seen["colours"] > 1 or seen["cells"] >= 3
    assert "Error" not in seen["text"]
    assert complaints(browser) == []


@pytest.mark.compose
def test_dashboard_page_that_does_not_exist(
    browser: "Chrome", shared_cluster: ComposeCluster
) -> None:
    """What the test above would see if a page were missing."""
    open_page(browser, f"http://127.0.0.1:{shared_cluster.dashboard_port}/no-such-page")
    seen = look(browser)
    assert (seen["rows"], seen["colours"]) == (0, 0)
    assert "404" in seen["text"]


def report(cluster: "LocalCluster", path: Path, mode: str | None) -> Path:
    with Client(cluster) as client, performance_report(str(path), mode=mode):
        wait(client.map(time.sleep, [0.05] * 6, pure=False))
    return path


def test_a_report_draws_every_tab_with_the_web_switched_off(
    browser: "Chrome", cluster: "LocalCluster", tmp_path: Path
) -> None:
    path = report(cluster, tmp_path / "report.html", "inline")
    open_page(browser, path.as_uri())
    eventually(lambda: look(browser)["idle"], "the report is drawn", SECONDS)
    titles = tab_titles(path.read_text(encoding="utf-8"))
    assert look(browser)["tabs"] == titles
    drawn = {}
    for number, title in enumerate(titles):
        browser.execute_script(
            "Bokeh.documents[0].roots()[0].active = arguments[0]", number
        )
        eventually(lambda: look(browser)["idle"], f"the tab {title} is drawn", SECONDS)
        drawn[title] = look(browser)["colours"]
    # The first and the log are text; all others are figures.
    assert {title for title, colours in drawn.items() if colours < 2} == {
        "Summary", "Scheduler Logs",
    }  # fmt: skip
    assert complaints(browser) == []


def test_a_usual_report_stays_blank_with_the_web_switched_off(
    browser: "Chrome", cluster: "LocalCluster", tmp_path: Path
) -> None:
    """Why the lesson keeps them inline; and that this browser would notice."""
    path = report(cluster, tmp_path / "usual.html", None)
    open_page(browser, path.as_uri())
    seen = look(browser)
    assert (seen["tabs"], seen["colours"], seen["rows"]) == ([], 0, 0)
    assert any("cdn.bokeh.org" in message for message in complaints(browser))


def test_the_task_stream_picture_draws_with_the_web_switched_off(
    browser: "Chrome", tmp_path: Path
) -> None:
    records: list[Record] = [
        {
            "key": (name, number),
            "worker": "tcp://10.0.0.1:4001",
            "thread": number,
            "startstops": [{"action": "compute", "start": 1.0, "stop": stop}],
        }
        for number, (name, stop) in enumerate([("tile", 2.0), ("region", 4.0)])
    ]
    path = tmp_path / "stream.html"
    save_stream(records, "Two tasks", path, {"tcp://10.0.0.1:4001": 2})
    open_page(browser, path.as_uri())
    eventually(lambda: look(browser)["idle"], "the picture is drawn", SECONDS)
    seen = look(browser)
    assert seen["colours"] > 10  # two bars, text and its edges
    assert seen["rows"] == 1  # a source for each of the two prefixes
    assert complaints(browser) == []


def test_the_index_opens_its_pages(browser: "Chrome", tmp_path: Path) -> None:
    (tmp_path / "a page.html").write_text("<title>the page</title>", encoding="utf-8")
    (tmp_path / "a page.json").write_text(
        '{"title": "A & B", "page": "a page.html", "when": "2026-11-30T18:00:00+00:00",'
        '"session": "local", "workers": 2, "bytes": 1900000, "totals": {"tasks": 12}}',
        encoding="utf-8",
    )
    open_page(browser, write_index(tmp_path).as_uri())
    seen = look(browser)
    assert "A & B" in seen["text"]
    assert "tasks: 12" in seen["text"]
    assert "1.9 MB" in seen["text"]
    browser.find_element("link text", "A & B").click()
    assert browser.title == "the page"
    assert complaints(browser) == []
