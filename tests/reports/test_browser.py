"""The report in a real browser: it fits desktop and phone, loads nothing and reports no error."""

import base64
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from reports import html
from tests.reports import samples

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no chromium and chromedriver on this machine"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    verdict, summary, run = samples.PASS
    four = (verdict, replace(summary, gpu=samples.gpu(270, 4)), run)
    paths = {}
    for name, sample in {**samples.SAMPLES, "four gpus": four}.items():
        paths[name] = folder / f"{name.replace(' ', '-')}.html"
        paths[name].write_text(html.render(*sample), encoding="utf-8")
    return paths


def visit(browser: webdriver.Chrome, page: Path, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    browser.get(page.as_uri())


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_page_fits_and_shows_its_verdict(
    browser: webdriver.Chrome, pages: dict[str, Path], name: str, width: int
) -> None:
    visit(browser, pages[name], width)
    size = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert size[0] <= size[1] == width
    word = browser.find_element(By.CSS_SELECTOR, "h1 .word")
    assert word.is_displayed()
    assert word.text == samples.SAMPLES[name][0].result
    assert word.location["y"] < 200
    assert browser.get_log("browser") == []
    loaded = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert browser.execute_script(loaded) == []


def test_a_script_would_not_run_even_if_one_got_in(
    browser: webdriver.Chrome, pages: dict[str, Path], tmp_path: Path
) -> None:
    """So that the page rests on its policy too, and not on escaping alone."""
    text = pages["pass"].read_text(encoding="utf-8")
    bad = tmp_path / "bad.html"
    bad.write_text(text.replace("</main>", "<script>document.title = 'run'</script></main>"))
    visit(browser, bad, 1280)
    assert browser.title.startswith("PASS")
    assert any(
        "Content Security Policy" in entry["message"] for entry in browser.get_log("browser")
    )


@pytest.mark.parametrize("name", ["fail", "inconclusive", "four gpus"])
@pytest.mark.parametrize(
    ("width", "shown", "hidden"), [(1280, "wide", "narrow"), (360, "narrow", "wide")]
)
def test_each_width_has_its_own_figures_and_their_labels_do_not_overlap(
    browser: webdriver.Chrome,
    pages: dict[str, Path],
    name: str,
    width: int,
    shown: str,
    hidden: str,
) -> None:
    visit(browser, pages[name], width)
    assert all(e.is_displayed() for e in browser.find_elements(By.CSS_SELECTOR, f".chart .{shown}"))
    assert not any(
        e.is_displayed() for e in browser.find_elements(By.CSS_SELECTOR, f".chart .{hidden}")
    )
    overlapping = browser.execute_script(
        """
        const found = [];
        for (const svg of document.querySelectorAll(`.chart .${arguments[0]} svg`)) {
          const texts = [...svg.querySelectorAll('text')]
            .map(t => [t.textContent.trim(), t.getBoundingClientRect()]);
          texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
            if (p.left < q.right - 1 && q.left < p.right - 1 &&
                p.top < q.bottom - 3 && q.top < p.bottom - 3)
              found.push([a, b]);
          }));
        }
        return found;
        """,
        shown,
    )
    assert overlapping == []


def test_folded_checks_are_open_in_print(browser: webdriver.Chrome, tmp_path: Path) -> None:
    verdict, summary, run = samples.PASS
    page = tmp_path / "folded.html"
    fine = replace(verdict, validity=samples.CHECKS[:4])
    page.write_text(html.render(fine, summary, run), encoding="utf-8")
    visit(browser, page, 1280)
    cell = browser.find_element(By.CSS_SELECTOR, "details td")
    assert not cell.is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.execute_script("return arguments[0].getBoundingClientRect().height", cell) > 0
    assert browser.execute_script("return arguments[0].checkVisibility()", cell)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
