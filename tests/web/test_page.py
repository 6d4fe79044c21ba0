"""The monitor page in a real browser."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from selenium.webdriver.common.keys import Keys

from mlxceld.flips import announcements
from mlxceld.plan import Wish
from tests import fake
from tests.api.serving import SETTINGS, Served, serve
from tests.service.running import streaming
from tests.web.browser import Browser
from tests.web.conftest import CANARY


@pytest.fixture
def page(browser: Browser, watched: Served) -> Browser:
    """The page of a server that is idle."""
    watched.until(watched.idle)
    browser.open(watched.url)
    browser.ready()
    return browser


@contextlib.contextmanager
def of_width(browser: Browser, pixels: int) -> Iterator[None]:
    """The page as a phone shows it."""
    size = {"width": pixels, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def speak(browser: Browser, language: str) -> None:
    browser.find(f"#language option[value={language}]").click()
    browser.until("document.documentElement.lang === arguments[0]", language)


def test_the_plan_is_told_in_words(page: Browser) -> None:
    assert page.text("#plan") == (
        "4 slots share 4,096 tokens; one request may use all of them "
        "(mode llama-compat)"
    )
    assert page.text("#state") == "Ready"
    assert page.text("#model") == "toy"


def test_bars_grow_with_four_running_requests(page: Browser, watched: Served) -> None:
    with contextlib.ExitStack() as running:
        for name in ("one", "two", "three", "four"):
            running.enter_context(streaming(watched.url, 3000, f"{name} {name}"))
        page.until(
            "[...document.querySelectorAll('#slots .generated')]"
            ".filter((part) => Number.parseFloat(part.style.width) > 0).length === 4"
        )
        before = page.widths("generated")
        page.until(
            "[...document.querySelectorAll('#slots .generated')].every("
            "(part, i) => Number.parseFloat(part.style.width) > arguments[0][i])",
            before,
        )
        assert "writing, prompt 2 (0 cached)" in page.text("#slots")
        page.shows("#speed", r"^[1-9][0-9,.]* tokens/s$")
        page.shows("#ttft", r"^[0-9.]+ s$")
        page.shows("#pool", r"^Running requests: [1-9][0-9,]* of 4,096 tokens")
    watched.until(watched.idle)
    page.shows("#slots", "Slot 0: idle, remembers")


def test_requests_without_a_slot_are_counted(page: Browser, watched: Served) -> None:
    page.click("#send-all")
    page.until("document.querySelectorAll('.try button:disabled').length === 4")
    page.shows("#slots", "Slot 3: writing")
    body = {"prompt": "late", "n_predict": 1}
    with ThreadPoolExecutor() as pool:
        late = pool.submit(watched.post, "/completion", body)
        page.shows("#waiting", "^Requests that wait for a slot: 1$")
        page.click("#stop-all")
        assert late.result().status_code == 200
    page.shows("#waiting", "^No request waits for a slot$")


def test_prompts_are_answered_side_by_side_and_can_be_stopped(
    page: Browser, watched: Served
) -> None:
    page.write("#tokens", "2000")
    page.click("#send-all")
    all_write = (
        "[...document.querySelectorAll('.answer')].filter("
        "(answer) => answer.textContent.length > 20).length === 4"
    )
    page.until(all_write)
    # Every one of them still runs: they were answered at the same time.
    assert [button.is_enabled() for button in page.all(".try button")] == [
        False,
        True,
    ] * 4
    page.find(".try:nth-child(1) button:nth-child(2)").click()
    page.shows(".try:nth-child(1) [role=status]", "^Stopped$")
    page.shows(".try:nth-child(2) [role=status]", "^First token after")
    page.click("#stop-all")
    for n in (2, 3, 4):
        page.shows(f".try:nth-child({n}) [role=status]", "^Stopped$")
    watched.until(watched.idle)
    assert page.complaints() == []
    asked = page.requested()
    assert len([url for url in asked if url.endswith("/v1/chat/completions")]) == 4
    # Nothing but this server was asked for anything.
    assert [url for url in asked if not url.startswith(watched.url + "/")] == []


def test_what_a_model_writes_never_becomes_an_element(page: Browser) -> None:
    # The answer of the script is the same text.
    page.write("#prompt-1", f"canary {CANARY}")
    page.find(".try:nth-child(1) button").click()
    page.shows(".try:nth-child(1) [role=status]", "tokens/s$")
    assert page.text(".try:nth-child(1) .answer") == CANARY
    assert page.all("img, .answer script, textarea script") == []
    assert page.driver.title == "mlxcel-server"
    assert page.complaints() == []


def test_an_error_of_a_request_is_shown_where_it_was_sent_and_in_the_list(
    page: Browser,
) -> None:
    page.write("#prompt-2", "boom today")
    page.find(".try:nth-child(2) button").click()
    page.shows(".try:nth-child(2) [role=status]", "^Failed: ")
    page.shows("#errors", r"/v1/chat/completions: server_error \(in its stream\)$")
    assert "today" not in page.text("#errors")


def test_inline_code_and_styles_are_blocked(page: Browser) -> None:
    owned = page.run(
        """
        const script = document.createElement("script");
        script.textContent = "window.owned = true";
        const styled = document.createElement("p");
        styled.setAttribute("style", "position: fixed");
        const frame = document.createElement("a");
        frame.setAttribute("onclick", "window.owned = true");
        document.body.append(script, styled, frame);
        frame.click();
        return [window.owned ?? false, getComputedStyle(styled).position];
        """
    )
    assert owned == [False, "static"]
    assert any("Content Security Policy" in told for told in page.complaints())


def test_nothing_serious_stands_in_the_way_of_a_screen_reader(page: Browser) -> None:
    assert page.faults() == []
    speak(page, "ko")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    try:
        assert page.faults() == []
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_keyboard_reaches_everything(page: Browser) -> None:
    page.find("body").send_keys(Keys.TAB)
    assert page.run("return document.activeElement.className") == "skip"
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.until("location.hash === '#try'")
    wanted = ["columns", "tokens", "send-all", "stop-all", "prompt-1"]
    for name in wanted:
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        assert page.run("return document.activeElement.id") == name


def test_a_phone_shows_all_of_it_without_scrolling_sideways(page: Browser) -> None:
    with of_width(page, 360):
        for language in ("en", "ko"):
            speak(page, language)
            assert page.run("return innerWidth") == 360
            assert page.overflows() == 0


def test_the_browser_chooses_the_language_and_the_reader_another(
    browser: Browser, watched: Served
) -> None:
    def prefer(languages: str) -> None:
        agent = browser.run("return navigator.userAgent")
        browser.driver.execute_cdp_cmd(
            "Emulation.setUserAgentOverride",
            {"userAgent": agent, "acceptLanguage": languages},
        )

    prefer("ko-KR,ko")
    try:
        browser.open(watched.url)
        browser.ready()
        assert browser.text("#state") == "준비됨"
        assert browser.text("#plan").startswith("슬롯 4개가 4,096토큰을 함께 쓰며")
        assert browser.run("return document.documentElement.lang") == "ko"
        assert "여우와 등대" in browser.run(
            "return document.querySelector('#prompt-1').value"
        )
        speak(browser, "en")
        browser.shows("#state", "^Ready$")
        browser.shows("#try h2", "^Try it$")
    finally:
        prefer("en-US")


def test_both_languages_say_the_same_things(page: Browser) -> None:
    missing = page.driver.execute_async_script(
        """
        const done = arguments[0];
        const names = (text) => [...text.matchAll(/\\{[a-z]+\\}/g)].sort().join();
        import("/monitor/words.js").then(({ WORDS }) => {
            const keys = new Set(Object.values(WORDS).flatMap(Object.keys));
            done([...keys].filter((key) => {
                const [en, ko] = [WORDS.en[key], WORDS.ko[key]];
                return !en || !ko || names(en) !== names(ko);
            }));
        });
        """
    )
    assert missing == []


def test_the_page_follows_an_engine_that_crashes_and_comes_back(
    page: Browser, watched: Served
) -> None:
    pid = watched.client.pid
    assert pid is not None
    with streaming(watched.url, 3000):
        page.shows("#slots", "writing")
        os.kill(pid, signal.SIGKILL)
        page.shows("#state", "starting again$")
    page.shows("#state", "^Ready$")
    page.shows("#errors", "The engine was killed by SIGKILL")
    with streaming(watched.url, 3000):
        page.shows("#slots", "writing")
    assert page.complaints() == []


def test_the_page_waits_for_a_server_that_is_started_again(browser: Browser) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serve(port=port) as first:
        browser.open(first.url)
        browser.ready()
    browser.shows("#state", "^The server does not answer")
    with serve(fake.Script(load_seconds=1.5), wait=False, port=port):
        browser.shows("#state", "^The model is loading$")
        browser.shows("#doing", "^loading weights: 0 B of 100 B$")
        browser.shows("#state", "^Ready$")
        assert not browser.find("#loading").is_displayed()


def test_a_key_is_asked_for_and_kept_in_memory_only(browser: Browser) -> None:
    server = replace(SETTINGS.server, api_key=("sesame",))
    with serve(settings=replace(SETTINGS, server=server)) as served:
        browser.open(served.url)
        browser.until("!document.querySelector('#lock').hidden")
        assert browser.text("#slots") == ""
        browser.write("#key", "guess")
        browser.find("#lock button").click()
        browser.shows("#lock-wrong", "does not know this key")
        browser.write("#key", "sesame" + Keys.ENTER)
        browser.ready()
        assert not browser.find("#lock").is_displayed()
        browser.find(".try:nth-child(1) button").click()
        browser.shows(".try:nth-child(1) [role=status]", "tokens/s$")
        kept = browser.run(
            "return [localStorage.length, sessionStorage.length, document.cookie,"
            "document.querySelector('#key').value, location.href]"
        )
        assert kept == [0, 0, "", "", f"{served.url}/"]
        assert not any("sesame" in url for url in browser.requested())
        browser.open("about:blank")


def test_a_default_that_will_change_is_announced(
    page: Browser, watched: Served
) -> None:
    wish = Wish(ctx_size=2048, parallel=4)
    watching = watched.app.live.state.watching
    watching.flips = tuple(announcements(wish, {}))
    try:
        page.shows("#flips", "its default changes from .legacy. to .llama-compat.")
        page.shows("#flips", "Then: 4 slots of 512 tokens each, 2,048 in all")
        page.shows("#flips", 'Write engine.mode = "legacy" to keep')
    finally:
        watching.flips = ()
    page.until("document.querySelector('#flips').hidden")


def test_a_page_that_nobody_sees_costs_the_server_nothing(
    page: Browser, watched: Served
) -> None:
    watching = watched.app.live.state.watching
    assert watching.watchers == 1
    page.open("about:blank")
    watched.until(lambda: watching.watchers == 0)
    made = watching.made
    assert (
        watched.post("/completion", {"prompt": "go", "n_predict": 20}).status_code
        == 200
    )
    assert watching.made == made
