"""The site in a real browser: search, tabs, colours, small screens, keyboard, axe."""

import functools
import importlib.util
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import leave_out
from docs_site import DOCS, Site

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PAGES = [
    "index",
    "setup",
    "lessons/index",
    "lessons/0101_connect",
    "lessons/0203_locality",
    "concepts/memory",
    "diagnosing",
    "reference/settings",
    "reference/metrics",
    "reference/glossary",
    "reference/api",
]
"""One of each kind; what takes long is tried on these."""
EVERY_PAGE = sorted(
    str(path.relative_to(DOCS).with_suffix(""))
    for path in DOCS.rglob("*.md")
    if "_build" not in path.parts and path.name != "README.md"
)
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
    "--disable-dev-shm-usage",
]
SECONDS = 120  # deadlines only: axe takes 20 s for the longest page on a busy machine


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    """The site on a port of the loopback interface."""
    handler = functools.partial(Quiet, directory=str(site.folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join(10)


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Any]:
    """One headless browser with a profile of its own."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    remedy = "install chromium and chromium-driver"
    if not chromium or not driver:
        leave_out("Chromium or its driver is missing", remedy)
    if importlib.util.find_spec("selenium") is None:
        leave_out("selenium is not installed", "'make test' brings it")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(chromium)
    # What the network is asked for is part of what is tested.
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    with tempfile.TemporaryDirectory() as profile:
        for flag in [*FLAGS, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        running = webdriver.Chrome(options=options, service=Service(driver))
        running.set_page_load_timeout(SECONDS)
        running.set_script_timeout(SECONDS)
        yield running
        running.quit()


def resize(browser: Any, width: int, height: int = 900) -> None:
    """Narrower than a window can be, too."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


def choose_mode(browser: Any, address: str, mode: str) -> None:
    browser.get(f"{address}/index.html")
    for item in ("mode", "theme"):
        browser.execute_script(f"localStorage.setItem('{item}', '{mode}')")


def wait_for(browser: Any, script: str) -> Any:
    """What ``script`` returns, once that is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, SECONDS).until(lambda b: b.execute_script(script))


@pytest.mark.parametrize(
    ("words", "page"),
    [("KilledWorker", "glossary"), ("unmanaged memory", "glossary")],
)
def test_search_finds(words: str, page: str, address: str, browser: Any) -> None:
    resize(browser, 1280)
    browser.get(f"{address}/search.html?q={words.replace(' ', '+')}")
    found = wait_for(
        browser,
        "const done = document.querySelectorAll('#search-results li a');"
        "return done.length ? Array.from(done, a => a.href) : null",
    )
    assert any(page in link for link in found)


def test_search_works_from_a_folder(site: Site, browser: Any) -> None:
    browser.get(f"{site.folder.as_uri()}/search.html?q=KilledWorker")
    assert wait_for(
        browser, "return document.querySelectorAll('#search-results li a').length"
    )


def chosen_tab(browser: Any) -> str:
    return str(
        browser.execute_script(
            "return document.querySelector('.sd-tab-set > input:checked + label')"
            ".dataset.syncId"
        )
    )


def test_tabs_follow_from_page_to_page(address: str, browser: Any) -> None:
    resize(browser, 1280)
    browser.get(f"{address}/lessons/0101_connect.html")
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    assert chosen_tab(browser) == "compose"
    browser.execute_script(
        "document.querySelector('label[data-sync-id=local]').click()"
    )
    for page in ("lessons/0202_scatter_gather", "index", "lessons/0101_connect"):
        browser.get(f"{address}/{page}.html")
        assert chosen_tab(browser) == "local", page
    browser.execute_script("localStorage.clear()")


def test_tabs_by_keyboard(address: str, browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get(f"{address}/lessons/0101_connect.html")
    browser.execute_script(
        "document.querySelector('.sd-tab-set > input:checked').focus()"
    )
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert chosen_tab(browser) == "local"
    outline = browser.execute_script(
        "return getComputedStyle("
        "document.querySelector('.sd-tab-set > input:checked + label')).outlineStyle"
    )
    assert outline != "none", "nobody sees where the keyboard is"
    browser.execute_script("localStorage.clear()")


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_modes(mode: str, address: str, browser: Any) -> None:
    choose_mode(browser, address, mode)
    browser.refresh()
    colour = browser.execute_script(
        "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g)"
    )
    text = browser.execute_script(
        "return getComputedStyle(document.querySelector('.lab-diagram text'))"
        ".fill.match(/\\d+/g)"
    )
    bright, drawn = sum(map(int, colour[:3])), sum(map(int, text[:3]))
    assert (bright > 600) == (mode == "light")
    assert (drawn < 300) == (mode == "light"), "the diagram does not follow"


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_no_sideways_scrolling_at_390_pixels(
    page: str, address: str, browser: Any
) -> None:
    resize(browser, 390, 844)
    browser.get(f"{address}/{page}.html")
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= 390
    browser.execute_script("document.querySelectorAll('details').forEach(d=>d.open=1)")
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= 390
    resize(browser, 1280)


def test_keyboard_reaches_the_text_first_and_then_the_rest(
    address: str, browser: Any
) -> None:
    from selenium.webdriver.common.keys import Keys

    resize(browser, 1280)
    browser.get(f"{address}/lessons/0101_connect.html")
    browser.find_element("tag name", "body").send_keys(Keys.TAB)
    first = browser.execute_script("return document.activeElement.textContent.trim()")
    assert "Skip to main content" in first
    reached = set()
    for _ in range(80):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(
            browser.execute_script(
                "const e = document.activeElement;"
                "return e.tagName + ' ' + (e.className || e.type || '')"
            )
        )
    assert any(
        place.startswith("INPUT sd-tab-input") or "radio" in place for place in reached
    ), reached
    assert any(place.startswith("SUMMARY") for place in reached), reached
    assert any(place.startswith("PRE") for place in reached), "long lines out of reach"


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_axe_core_has_no_serious_finding(
    mode: str, page: str, address: str, browser: Any
) -> None:
    resize(browser, 1280)
    choose_mode(browser, address, mode)
    browser.get(f"{address}/{page}.html")
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    # In the dark only colours are different; all rules take up to 40 s.
    rules = (
        "" if mode == "light" else ", runOnly: ['color-contrast', 'link-in-text-block']"
    )
    findings = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        f"axe.run(document, {{resultTypes: ['violations']{rules}}})"
        ".then(r => done(r.violations), e => done([{id: String(e), impact: 'serious',"
        " nodes: []}]))"
    )
    serious = [
        (f["id"], [node["html"][:200] for node in f["nodes"]][:5])
        for f in findings
        if f["impact"] in ("serious", "critical")
    ]
    assert not serious


def test_pages_ask_nobody_else(address: str, browser: Any) -> None:
    browser.get_log("performance")  # what was before
    for page in PAGES:
        browser.get(f"{address}/{page}.html")
    messages = [
        json.loads(entry["message"])["message"]
        for entry in browser.get_log("performance")
    ]
    asked = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert len(asked) > len(PAGES)
    assert not [url for url in asked if not url.startswith((address, "data:"))]
