"""A real browser for the tests of the monitor page; nothing of it leaves this host."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_core_python
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.documents.tools import have

PATIENCE = 20.0
"""Seconds for anything to show; two busy cores are slow to draw."""

AXE = Path(axe_core_python.__file__).parent / "axe.min.js"


class Browser:
    """A tab, and what the tests ask of it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """A fresh page; forgets what was logged for the one before."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(url)

    def find(self, css: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css: str) -> str:
        return str(
            self.run("return document.querySelector(arguments[0]).innerText", css)
        )

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def until(self, condition: str, *values: Any) -> None:
        """Wait until a JavaScript expression holds."""
        WebDriverWait(self.driver, PATIENCE, 0.05).until(
            lambda _: self.run(f"return !!({condition})", *values), condition
        )

    def shows(self, css: str, pattern: str) -> None:
        """Wait until an element's text matches."""
        found = ""

        def matches(_: Any) -> bool:
            nonlocal found
            found = self.text(css)
            return re.search(pattern, found) is not None

        WebDriverWait(self.driver, PATIENCE, 0.05).until(matches, f"{css}: {pattern}")

    def ready(self) -> None:
        self.until("document.querySelector('#state').dataset.state === 'ready'")
        self.until("document.querySelectorAll('#slots li').length")

    def write(self, css: str, text: str) -> None:
        element = self.find(css)
        element.clear()
        element.send_keys(text)

    def click(self, css: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", css)

    def widths(self, part: str) -> list[float]:
        """The parts of this class in the slots' bars, in percent."""
        script = """
            return [...document.querySelectorAll(`#slots .bar .${arguments[0]}`)].map(
                (part) => Number.parseFloat(part.style.width))"""
        found: list[float] = self.run(script, part)
        return found

    def complaints(self) -> list[str]:
        """What the console has said since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self) -> list[str]:
        """The addresses that were asked for since the page was opened."""
        events = (
            json.loads(entry["message"])["message"]
            for entry in self.driver.get_log("performance")
        )
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def overflows(self) -> float:
        """By how many pixels the page is wider than the window."""
        script = (
            "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
        )
        return float(self.run(script))

    def faults(self) -> list[str]:
        """What axe-core finds that is serious or worse."""
        self.driver.execute_script(AXE.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "const done = arguments[0];"
            "axe.run({resultTypes: ['violations']}).then(done, (e) => done(String(e)))"
        )
        assert isinstance(found, dict), found
        return [
            f"{fault['id']}: {[node['html'] for node in fault['nodes']]}"
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
        ]


@contextmanager
def browsing(language: str) -> Iterator[Browser]:
    """A browser that prefers `language`, until the block ends."""
    chromium, driver = have("chromium"), have("chromedriver")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = Options()
        options.binary_location = chromium
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--accept-lang={language}",
            f"--user-data-dir={profile}",
            "--window-size=1200,1000",
        ):
            options.add_argument(argument)
        options.add_experimental_option("prefs", {"intl.accept_languages": language})
        options.set_capability(
            "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
        )
        made = webdriver.Chrome(options=options, service=Service(driver))
        try:
            made.set_script_timeout(PATIENCE)
            yield Browser(made)
        finally:
            made.quit()
