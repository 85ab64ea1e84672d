"""The page in a real browser, if there is one: it fits, can be read in the dark and in print, and fetches nothing."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpustrap.catalog.loader import load_catalog
from gpustrap.model.certificate import Fleet
from gpustrap.report import html
from gpustrap.report.certificate_view import view_fleet

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SECONDS = 60
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Text that sticks out of the box it is in, of the machine's picture.
STICKS_OUT = """
[...document.querySelectorAll('.box')].filter(box => {
  const [frame, text] = ['rect', 'text'].map(part => box.querySelector(part).getBoundingClientRect())
  return text.left < frame.left || text.right > frame.right || text.top < frame.top || text.bottom > frame.bottom
}).map(box => box.querySelector('title').textContent)
"""
# Words that are hard to read: contrast with what is behind them below WCAG's 4.5, of a sample of every class.
PALE = """
(() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number)
  const light = colour => numbers(colour).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0)
  const behind = e => {
    for (; e; e = e.parentElement) {
      const found = numbers(getComputedStyle(e).backgroundColor)
      if (found.length < 4 || found[3] > 0) return getComputedStyle(e).backgroundColor
    }
    return 'rgb(255, 255, 255)'
  }
  const pale = new Set()
  for (const e of document.querySelectorAll('body *:not(svg *)')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue
    const [one, other] = [light(getComputedStyle(e).color), light(behind(e))].sort((a, b) => b - a)
    if ((one + 0.05) / (other + 0.05) < 4.5) pale.add(e.tagName + '.' + e.className)
  }
  return [...pale]
})()
"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")


class Browser:
    """Chromium through its own pipe: requests go in on descriptor 3, answers and events come out of 4, NUL between."""

    def __init__(self, profile: Path) -> None:
        theirs_in, self._in = os.pipe()
        self._out, theirs_out = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs_in, theirs_out)]
        self.process = subprocess.Popen(
            [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=lambda: (os.dup2(high[0], 3), os.dup2(high[1], 4)),  # noqa: PLW1509 - one thread
        )
        for fd in (theirs_in, theirs_out, *high):
            os.close(fd)
        self._ids, self._buffer = itertools.count(1), b""
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Network.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if hasattr(self, "session"):
            message["sessionId"] = self.session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("method") == "Network.requestWillBeSent":
                self.requests.append(found["params"]["request"]["url"])
            if found.get("id") == number:
                assert "error" not in found, found
                return dict(found["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._out, 1 << 20)
            assert piece, "the browser is gone"
            self._buffer += piece
        first, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(first))

    def show(self, file: Path, *, width: int, scheme: str, media: str = "") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.call("Page.navigate", url=file.as_uri())
        end = time.monotonic() + SECONDS
        while self.tell("document.readyState + ' ' + location.protocol") != "complete file:":
            assert time.monotonic() < end
            time.sleep(0.05)

    def tell(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._in)
        os.close(self._out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture
def page(tmp_path: Path, whole: Fleet) -> Path:
    """The whole fleet, with the longest name a board has, and words that do not break by themselves."""
    longest = max((row.name for row in load_catalog().gpus), key=len)
    node = whole.nodes[2]
    assert node.hardware
    gpus = tuple(gpu.model_copy(update={"name": longest}) for gpu in node.hardware.gpus)
    check = node.checks[0].model_copy(update={"evidence": "x" * 900, "reason": "/" + "y" * 300, "remedy": "z" * 300})
    other = node.model_copy(
        update={
            "node": f"{'n' * 40}.{'example' * 4}.org",
            "hardware": node.hardware.model_copy(update={"gpus": gpus, "cpu": "c" * 120}),
            "checks": (check, *node.checks[1:]),
        }
    )
    file = tmp_path / "fleet.html"
    fleet = whole.model_copy(update={"nodes": (*whole.nodes, other)})
    file.write_text(html.render_certificates(view_fleet(fleet)), encoding="utf-8")
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_fits_and_can_be_read(browser: Browser, page: Path, width: int, scheme: str) -> None:
    browser.show(page, width=width, scheme=scheme)
    assert browser.tell(WIDE) <= 0
    assert browser.tell(STICKS_OUT) == []
    assert browser.tell(PALE) == []
    dark = browser.tell("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"
    assert dark is (scheme == "dark")


def test_the_page_asks_for_nothing_but_itself(browser: Browser, page: Path) -> None:
    browser.requests.clear()
    browser.show(page, width=1280, scheme="light")
    assert browser.requests == [page.as_uri()]


def test_the_page_prints_light_with_every_gpu_named(browser: Browser, page: Path) -> None:
    browser.show(page, width=800, scheme="dark", media="print")
    assert browser.tell("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.tell(PALE) == []
    assert browser.tell("document.querySelector('details li').getBoundingClientRect().height") > 0
    printed = base64.b64decode(browser.call("Page.printToPDF", printBackground=False)["data"])
    assert printed.startswith(b"%PDF")
