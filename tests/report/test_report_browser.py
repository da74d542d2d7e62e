"""The page in a real browser: curves, legend, read-out, slider, phone, dark, and an empty console."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import HOSTILE, chromium, make_run

from natgrad.report.making import report_runs

FOUND = chromium()
pytestmark = pytest.mark.skipif(
    FOUND is None,
    reason="NO CHROMIUM WITH CHROMEDRIVER HERE: the report is not tested in a browser; install Debian's "
    "chromium and chromium-driver",
)
NATURAL = "natural-" + "-".join(["a-long-name"] * 8)
LAPTOP, PHONE = (1366, 900), (390, 844)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver

    assert FOUND is not None
    options = webdriver.ChromeOptions()
    options.binary_location = FOUND[0]
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(FOUND[1]))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: a natural one with a long name, a plain one, and one with almost nothing in it."""
    place = tmp_path_factory.mktemp("runs")
    natural = make_run(place / NATURAL, epochs=12)
    plain = make_run(
        place / "plain", epochs=8, method="rws", data="</script><script>window.hurt = 1</script>"
    )
    little = make_run(place / HOSTILE, rows=[{"epoch": 0, "step": 0, "valid_loss": 7.0, "test_ll": None}])
    report_runs([natural, plain, little], out=place / "page.html")
    return place / "page.html"


@pytest.fixture
def look(browser: Any, page: Path) -> Callable[..., Any]:
    """`look(size, dark=False)` opens the page and returns the browser; its console must stay empty."""

    def opened(size: tuple[int, int] = LAPTOP, *, dark: bool = False) -> Any:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        browser.get_log("browser")
        browser.get(page.as_uri())
        until(lambda: browser.execute_script("return document.querySelectorAll('.plot > svg').length > 5"))
        return browser

    yield opened
    assert browser.get_log("browser") == []


def until(true: Callable[[], Any], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "the page did not get there"
        time.sleep(0.02)


def counted(driver: Any, selector: str) -> int:
    return driver.execute_script("return document.querySelectorAll(arguments[0]).length", selector)


def test_curves_are_drawn_inside_their_axes(look: Any) -> None:
    driver = look()
    for x in ("epoch", "seconds"):
        curves = f'#learning [data-x="{x}"][data-y="train_loss valid_loss"] path.curve'
        assert counted(driver, curves) == (5 if x == "epoch" else 4)  # the third run has no seconds
    inside = """
      const bad = [];
      for (const figure of document.querySelectorAll('#steps figure, #layers figure')) {
        const frame = figure.querySelector('.plot').getBoundingClientRect();
        for (const path of figure.querySelectorAll('path.curve')) {
          const box = path.getBoundingClientRect();
          const numbers = /^M[-\\d.,L]+$/.test(path.getAttribute('d'));
          if (!numbers || box.left < frame.left || box.right > frame.right) bad.push(figure.dataset.title);
        }
      }
      return bad;
    """
    assert driver.execute_script(inside) == []
    assert "NaN" not in driver.execute_script("return document.querySelector('main').innerHTML")


def test_a_curve_has_its_numbers_heights(look: Any) -> None:
    driver = look()
    heights = driver.execute_script("""
      document.querySelector('[data-from="0"]').click();
      const path = document.querySelector('#learning [data-x="epoch"][data-y="test_ll"] g.c0 path.curve');
      return path.getAttribute('d').slice(1).split('L').map(p => p.split(',').map(Number));
    """)
    losses = [4 + 3 / (epoch + 1) for epoch in range(13)]
    (x0, y0), (x1, y1) = heights[0], heights[-1]
    for epoch, (x, y) in enumerate(heights):
        assert x == pytest.approx(x0 + (x1 - x0) * epoch / 12, abs=0.2)
        share = (losses[0] - losses[epoch]) / (losses[0] - losses[-1])  # log-likelihoods rise as losses fall
        assert y == pytest.approx(y0 + (y1 - y0) * share, abs=0.2)
    assert y1 < y0


def test_the_legend_toggles_a_runs_curves_and_cards(look: Any) -> None:
    driver = look()
    button = driver.find_element("css selector", '[data-toggle="0"]')
    curves, shown = "#learning g.c0 path.curve", '#pictures [data-card="0"]:not([hidden])'
    before = counted(driver, curves), counted(driver, "#learning g.c1 path.curve"), counted(driver, shown)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    after = counted(driver, curves), counted(driver, "#learning g.c1 path.curve"), counted(driver, shown)
    assert after == (0, before[1], 0)
    button.click()
    assert (counted(driver, curves), counted(driver, shown)) == (before[0], before[2])
    assert min(before) > 0


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_the_read_out_tells_the_nearest_values(look: Any, size: tuple[int, int]) -> None:
    from selenium.webdriver import ActionChains, Keys

    driver = look(size)
    picture = driver.find_element("css selector", '#learning [data-x="epoch"][data-y="test_ll"] .plot > svg')
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", picture)
    ActionChains(driver).move_to_element_with_offset(picture, picture.rect["width"] // 2 - 14, 0).perform()
    told = driver.find_element("css selector", ".readout").text
    assert "epoch 12" in told
    assert "-4.2308 ± 0.2 natural-a-long" in " ".join(told.split())
    inside = driver.execute_script("""
      const box = document.querySelector('.readout').getBoundingClientRect();
      return box.left >= 0 && box.right <= document.documentElement.clientWidth;
    """)
    assert inside
    ActionChains(driver).click(picture).send_keys(Keys.ARROW_LEFT).perform()
    assert "epoch" in driver.find_element("css selector", ".readout").text
    driver.execute_script("arguments[0].blur()", picture)
    until(lambda: counted(driver, ".readout") == 0)


def test_the_vertical_axis_can_hold_the_late_half_only(look: Any) -> None:
    driver = look()
    highest = """
      const texts = [...document.querySelectorAll('#learning [data-x="epoch"] [text-anchor="end"]')];
      return Math.max(...texts.map((t) => Number(t.textContent)).filter(Number.isFinite));
    """
    found = []
    for share in ("0", "0.5"):
        driver.find_element("css selector", f'[data-from="{share}"]').click()
        found.append(driver.execute_script(highest))
    driver.find_element("css selector", '[data-toggle="2"]').click()  # one row only: its start is its end
    found.append(driver.execute_script(highest))
    assert found[0] == found[1] == 7
    assert found[2] < 5


def test_the_slider_shows_earlier_pictures(look: Any) -> None:
    driver = look()
    state = """
      const source = (run) => document.querySelector(`#pictures [data-card="${run}"] img[alt="means"]`).src;
      return [document.getElementById('epoch').textContent, source(0), source(1)];
    """
    last = driver.execute_script(state)
    slide = """
      const slider = document.getElementById('time');
      slider.value = arguments[0]; slider.dispatchEvent(new Event('input'));
    """
    driver.execute_script(slide, 10)
    between = driver.execute_script(state)
    driver.execute_script(slide, 0)
    first = driver.execute_script(state)
    assert (last[0], between[0], first[0]) == ("12", "10", "0")
    assert between[1] != last[1]
    assert between[2] == last[2]  # the second run ended at epoch 8
    assert first[1] != between[1]
    assert driver.execute_script("return [...document.images].every((i) => i.complete && i.naturalWidth > 0)")


def test_layers_are_those_of_the_chosen_run(look: Any) -> None:
    driver = look()
    assert counted(driver, "#layers path.curve") == 12  # three quantities of four layers
    assert counted(driver, "#layers path.curve.dashed") == counted(driver, "#layers path.curve.solid") == 6
    keys = "return document.getElementById('layer-keys').textContent"
    assert driver.execute_script(keys) == "layer 0layer 1solid: left, dashed: right"
    driver.execute_script("""
      const choice = document.getElementById('layers-of');
      choice.value = 1; choice.dispatchEvent(new Event('change'));
    """)
    assert counted(driver, "#layers path.curve") == counted(driver, "#layers figure:not([hidden])") == 0
    assert driver.execute_script(keys) == "Nothing was recorded of its layers."


def test_hostile_text_is_shown_and_does_nothing(look: Any) -> None:
    driver = look()
    assert driver.execute_script("return window.hurt") is None
    assert HOSTILE in driver.find_element("id", "legend").text
    assert counted(driver, "img[src='x']") == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_it_fits_the_screen_and_the_scheme(
    look: Any, size: tuple[int, int], dark: bool, tmp_path: Path
) -> None:
    driver = look(size, dark=dark)
    whole = "const page = document.documentElement; return [innerWidth, page.scrollWidth - page.clientWidth]"
    assert driver.execute_script(whole) == [size[0], 0]
    paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in paper[4:-1].split(",")) / 3
    assert (light < 60) if dark else (light > 200)
    style = "return getComputedStyle(document.querySelector('#learning .charts')).gridTemplateColumns"
    assert len(driver.execute_script(style).split()) == (1 if size == PHONE else 2)
    shots = Path(os.environ.get("NATGRAD_SHOTS") or tmp_path)
    assert driver.save_screenshot(str(shots / f"{size[0]}-{'dark' if dark else 'light'}.png"))
