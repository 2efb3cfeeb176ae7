"""The report page in a real browser: it draws, opens modules, finds, counts, switches layers, and needs no network."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.inspection.report import report
from tests.waiting import until

selenium = pytest.importorskip("selenium.webdriver", reason="needs selenium")
Service = pytest.importorskip("selenium.webdriver.chrome.service").Service
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)", allow_module_level=True)


class Encoder(nn.Module):
    """Two layers in a submodule, as in models."""

    def __init__(self) -> None:
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 2)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.encoder(x)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    x = np.random.default_rng(0).standard_normal((1, 5, 16), np.float32)
    tokens = ["the", "<cat>", "sat", "on", "it"]
    report(
        Encoder(), ("N", "L", 16), path=path, data={"x": x}, tokens=tokens, targets=("any", "portable"), seconds=0.02
    )
    return path


@pytest.fixture(scope="module")
def browser():
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,1000",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = selenium.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, page):
    """The page, newly opened, without animations, and a check that it logged nothing on the console."""
    still = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": still})
    browser.get(page.as_uri())
    yield browser
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def boxes(browser) -> list[str]:
    identifiers: list[str] = browser.execute_script("return lucidReport.graph.view.nodes().map(n => n.id())")
    return identifiers


def click(browser, box: str, edge: bool = False) -> None:
    """Click a box of the picture: in its middle, or just inside the left edge of a frame."""
    canvas = browser.find_element("id", "graph")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    x, y, width, height = browser.execute_script(
        "const b = lucidReport.graph.view.getElementById(arguments[0]).renderedBoundingBox(), g = arguments[1];"
        "return [arguments[2] ? b.x1 + 3 : (b.x1 + b.x2) / 2, (b.y1 + b.y2) / 2, g.clientWidth, g.clientHeight]",
        box, canvas, edge,
    )  # fmt: skip
    assert 0 < x < width
    assert 0 < y < height
    selenium.ActionChains(browser).move_to_element_with_offset(
        canvas, round(x - width / 2), round(y - height / 2)
    ).click().perform()


def test_modules_open_and_fold_with_a_click(opened):
    # The only module contains just the layers, so these are shown at first.
    assert {"m:encoder.layers.0", "m:encoder.layers.1", "i:x", "o:output"} <= set(boxes(opened))
    click(opened, "m:encoder.layers.0")
    assert "m:encoder.layers.0.self_attn" in boxes(opened)
    click(opened, "m:encoder.layers.0.self_attn")
    inner = [box for box in boxes(opened) if box.startswith("n")]
    assert inner
    opened.find_element("id", "fit").click()
    click(opened, "m:encoder.layers.0", edge=True)
    assert "m:encoder.layers.0.self_attn" not in boxes(opened)


def test_what_is_opened_is_brought_into_view_and_arrows_have_shapes(opened):
    opened.execute_script("lucidReport.graph.zoomBy(0.1); lucidReport.graph.toggle('encoder.layers.1')")
    graph = "lucidReport.graph.view"
    x1, y1, x2, y2, width, height = opened.execute_script(
        f"const b = {graph}.getElementById('m:encoder.layers.1').renderedBoundingBox();"
        f"return [b.x1, b.y1, b.x2, b.y2, {graph}.width(), {graph}.height()]"
    )
    assert 0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height
    assert y2 - y1 > height / 2
    assert set(opened.execute_script(f"return {graph}.edges().map(e => e.data('label'))")) == {
        "", "[N, L, 16]", "[N, L, 32]",
    }  # fmt: skip


def test_search_finds_weights_modules_and_operations(opened):
    keys = selenium.Keys
    opened.find_element("tag name", "body").send_keys("/")  # the key that leads there
    field = opened.switch_to.active_element
    field.send_keys("layers.1 linear2.weight")
    assert [line.text for line in opened.find_elements("css selector", "#found li")] == [
        "encoder.layers.1.linear2.weight weight · float32[16, 32]"
    ]
    field.send_keys(keys.ENTER)
    assert "encoder.layers.1.linear2.weight: float32[16, 32]" in opened.find_element("id", "node").text
    field.send_keys(keys.CONTROL, "a")
    field.send_keys("layers.0.linear1")
    field.send_keys(keys.ARROW_DOWN, keys.ARROW_UP, keys.ENTER)
    chosen = opened.execute_script("return lucidReport.graph.view.$('node:selected').map(n => n.id())")
    assert chosen == ["m:encoder.layers.0.linear1"]
    field.send_keys(keys.CONTROL, "a")
    field.send_keys("nothing like it")
    assert "nothing has this name" in opened.find_element("id", "found").text


def test_the_list_is_used_with_keys(opened):
    keys = selenium.Keys
    line = opened.find_element("css selector", '#outline [tabindex="0"]')
    line.send_keys(keys.ARROW_DOWN)  # from "encoder", which is open, to "layers"
    opened.switch_to.active_element.send_keys(keys.ARROW_RIGHT)
    opened.switch_to.active_element.send_keys(keys.ARROW_RIGHT)
    assert opened.switch_to.active_element.get_attribute("data-module") == "encoder.layers.0"
    assert "m:encoder.layers.0.linear1" in boxes(opened)
    opened.switch_to.active_element.send_keys(keys.ARROW_LEFT)
    assert "m:encoder.layers.0.linear1" not in boxes(opened)


def test_summary_and_cost_by_module(opened):
    summary = opened.find_element("id", "summary").text
    for expected in (
        "4.45 k",
        "17.8 kB of weights",
        "target any",
        "Agrees with NumPy",
        "portable: expanded into basic",
    ):
        assert expected in summary
    lines = opened.find_elements("css selector", "#cost tbody tr")
    rows = {line.find_element("tag name", "td").text.strip("▾▸ \n"): line for line in lines}
    assert {"encoder", "layers", "0", "1", "self_attn", "norm2"} <= rows.keys()
    assert "50.0 %" in rows["0"].text  # of two equal layers
    assert "N = 1, L = 5" in opened.find_element("id", "cost-note").text
    rows["1"].find_elements("css selector", "button")[1].click()
    chosen = opened.execute_script("return lucidReport.graph.view.$('node:selected').map(n => n.id())")
    assert chosen == ["m:encoder.layers.1"]


def test_the_chart_of_errors_names_modules_and_leads_to_operations(opened):
    chart = "echarts.getInstanceByDom(document.getElementById('errors'))"
    shown = opened.execute_script(
        f"const o = {chart}.getOption(), a = o.xAxis[0];"
        "return a.data.filter(a.axisLabel.interval).map(a.axisLabel.formatter)"
    )
    assert {"0.self_attn", "1.self_attn"} <= set(shown)
    canvas = opened.find_element("id", "errors")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    id_, x, y, width, height = opened.execute_script(
        "const i = 3, e = JSON.parse(document.getElementById('data').textContent).errors[i], box = arguments[0];"
        f"const [x, y] = {chart}.convertToPixel({{seriesIndex: 0}}, [i, e.max_abs]);"
        "return [e.id, x, y, box.clientWidth, box.clientHeight]",
        canvas,
    )
    selenium.ActionChains(opened).move_to_element_with_offset(
        canvas, round(x - width / 2), round(y - height / 2)
    ).click().perform()
    assert opened.execute_script("return lucidReport.graph.view.$('node:selected').map(n => n.id())") == [id_]
    assert opened.find_element("id", "node").is_displayed()


def test_a_node_shows_its_types(opened):
    opened.find_element("id", "unfold").click()
    node = opened.execute_script("return lucidReport.graph.view.nodes('[kind=\"attention\"]').first().id()")
    opened.execute_script("lucidReport.graph.view.center(lucidReport.graph.view.getElementById(arguments[0]))", node)
    click(opened, node)
    panel = opened.find_element("id", "node").text
    for expected in (
        "attention",
        "encoder.layers.0.self_attn",
        "linear: float32[N, L, 16]",
        "heads = 2",
        "ai.onnx Attention",
        "return self.encoder(x)",
    ):
        assert expected in panel


def test_sections_without_contents_are_named_with_their_reason(opened):
    assert "Few bits\nno weights are quantized" in opened.find_element("id", "not-shown").text
    hidden = [section.get_attribute("id") for section in opened.find_elements("css selector", "section[hidden]")]
    assert hidden == ["precision-section"]


def test_the_outline_opens_modules_too(opened):
    opened.find_element("css selector", '[data-module="encoder.layers.1"]').click()
    line = opened.find_element("css selector", '[data-module="encoder.layers.1"]')
    assert line.get_attribute("aria-expanded") == "true"
    assert "m:encoder.layers.1.linear1" in boxes(opened)
    opened.find_element("id", "fold").click()
    assert "m:encoder.layers.1.linear1" not in boxes(opened)


def test_the_slider_goes_through_the_layers(opened):
    def cells() -> list[list[float]]:
        chart = "echarts.getInstanceByDom(document.getElementById('map'))"
        values: list[list[float]] = opened.execute_script(f"return {chart}.getOption().series[0].data")
        return values

    name = opened.find_element("id", "layer-name")
    assert name.text == "1 of 2: encoder.layers.0.self_attn"
    first = cells()
    assert len(first) == 25
    assert sum(cell[2] for cell in first) == pytest.approx(5, rel=0.02)  # rows of weights sum to 1
    opened.find_element("id", "layer").send_keys(selenium.Keys.ARROW_RIGHT)
    assert name.text == "2 of 2: encoder.layers.1.self_attn"
    second = cells()
    assert second != first
    opened.find_elements("css selector", "#heads button")[2].click()
    assert opened.find_elements("css selector", "#heads button")[2].get_attribute("aria-pressed") == "true"
    assert cells() != second


def test_charts_and_tables_are_drawn(opened):
    for chart in ("map", "errors", "latency", "memory"):
        assert opened.find_elements("css selector", f"#{chart} canvas"), chart
    assert "portable" in opened.find_element("id", "targets").text
    assert "differs from" in opened.find_element("id", "targets").text
    for reasons in opened.find_elements("css selector", "#forms summary"):
        reasons.click()
    assert "needs opset 23, this export asks for 18" in opened.find_element("id", "forms").text


def test_light_and_dark(opened):
    def theme() -> str:
        return str(opened.execute_script("return getComputedStyle(document.body).backgroundColor"))

    for scheme, expected in (("dark", "rgb(20, 22, 31)"), ("light", "rgb(255, 255, 255)")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        until(lambda expected=expected: theme() == expected)
    opened.find_element("id", "theme").click()
    until(lambda: theme() == "rgb(20, 22, 31)")


def test_readable_on_a_phone(opened):
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        until(lambda: opened.execute_script("return document.documentElement.scrollWidth") <= 390)
        assert opened.execute_script("return document.getElementById('graph').clientWidth") > 300
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("boxes", [30, 300])  # placed by dagre; by rows
def test_every_box_is_below_what_leads_to_it(opened, boxes):
    arrows = [(f"b{i}", f"b{j}") for j in range(1, boxes) for i in {j - 1, j // 2, 0} if i != j]
    data = [{"id": f"b{i}", "w": 40, "h": 20} for i in range(boxes)]
    data += [{"id": f"{a}>{b}", "source": a, "target": b} for a, b in arrows]
    positions = opened.execute_script(
        "return [...lucidLayout.positions(arguments[0].map((data) => ({data}))).entries()]", data
    )
    y = {name: place["y"] for name, place in positions}
    assert len(y) == boxes and all(y[a] + 20 < y[b] for a, b in arrows)


def test_nothing_is_loaded_from_anywhere(opened):
    assert opened.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []


def test_a_bar_for_each_layer_in_few_bits(browser, tmp_path):
    layer = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8))
    small = lucid.quantize(layer, 4, block=16)
    report(small, ("N", 32), path=tmp_path / "report.html", targets=(), floating=layer)
    browser.get((tmp_path / "report.html").as_uri())
    assert browser.find_elements("css selector", "#precision canvas")
    option = "echarts.getInstanceByDom(document.getElementById('precision')).getOption()"
    bars = browser.execute_script(f"return {option}.series.map((s) => [s.name, s.type, s.data.length])")
    assert bars == [["alone", "bar", 2], ["in the model", "bar", 2]]
    assert "size: 0.00 MB" in browser.find_element("id", "precision-summary").text
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_the_sites_search_runs_from_files(browser, tmp_path):
    """Browsers refuse workers to pages opened from files; the documentation brings something in their place."""
    shim = Path(__file__).parents[1] / "docs" / "javascripts" / "iframe-worker.js"
    (tmp_path / "half.js").write_text("self.half = (x) => x / 2;", encoding="utf-8")
    (tmp_path / "worker.js").write_text(
        "const ready = importScripts('half.js');"
        "addEventListener('message', async (event) => { await ready; postMessage(self.half(event.data)); });",
        encoding="utf-8",
    )
    (tmp_path / "page.html").write_text(
        f'<body><script src="{shim.as_uri()}"></script><script>const worker = new Worker("worker.js");'
        'worker.addEventListener("message", (event) => { document.title = event.data; }); worker.postMessage(42);'
        "</script></body>",
        encoding="utf-8",
    )
    browser.get((tmp_path / "page.html").as_uri())
    until(lambda: browser.title == "21")
