"""A real browser at the real product: a web process, a worker, a scripted model server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from django.db import connections
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from hermes import env
from sessions_app import intake
from sessions_app.models import Chat
from tests import factories
from tests.conftest import environment_of_processes
from tests.scripted.fixtures import scripted
from tests.socket.conftest import Process, Web, Worker, sign_in

__all__ = ["scripted"]

# Every machine has this level; the sandbox has tests of its own.
OPEN = {"HERMES_SANDBOX": "none", "HERMES_SANDBOX_ACCEPTED": "none"}
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WATCH = """
window.__refused = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.__refused.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


@pytest.fixture(scope="package")
def product(django_db_setup: None) -> Iterator[dict[str, Process]]:
    """The processes of the product, started with the first test and kept for all of these."""
    made: dict[str, Process] = {}
    yield made
    for process in made.values():
        process.stop()


class Supervisor(Process):
    """The process that keeps the commands of this machine."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        command = [sys.executable, str(env.BASE / "manage.py"), "supervise"]
        super().__init__(command, environment, log)


def _kept(kind, product, environment, tmp_path):
    if kind.__name__ not in product:
        made = kind(environment, tmp_path / f"{kind.__name__}.log")
        made.start()
        product[kind.__name__] = made
    return product[kind.__name__]


@pytest.fixture(scope="package")
def product_environment(django_db_setup: None, tmp_path_factory) -> Mapping[str, str]:
    """The environment of all of them: they share a data folder."""
    folder = tmp_path_factory.mktemp("product")
    workspace = {"HERMES_WORKSPACE": str(folder / "workspace")}
    return {**environment_of_processes(folder), **OPEN, **workspace}


@pytest.fixture
def web(transactional_db, product_environment, product, tmp_path) -> Web:
    """A running web process."""
    return _kept(Web, product, product_environment, tmp_path)


@pytest.fixture
def worker(transactional_db, product_environment, product, tmp_path) -> Worker:
    """A running worker; what it lets the agent run is not confined."""
    return _kept(Worker, product, product_environment, tmp_path)


@pytest.fixture
def supervisor(transactional_db, product_environment, product, tmp_path) -> Supervisor:
    """A running supervisor of commands."""
    return _kept(Supervisor, product, product_environment, tmp_path)


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    """The driver of browsers, for all of these tests."""
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as found:
        # Its loop runs in this thread, and the tests look at rows between its steps.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield found
        connections.close_all()  # of this thread while a loop runs in it


@pytest.fixture(scope="package")
def started(playwright: Playwright) -> Iterator[list[Browser]]:
    """The browser that tests share; each has windows of its own."""
    found: list[Browser] = []
    yield found
    for each in found:
        each.close()


@pytest.fixture
def browser(playwright: Playwright, started: list[Browser]) -> Browser:
    """Debian's chromium; a machine without it cannot run these tests, and is told so."""
    if not CHROMIUM.exists():
        pytest.fail(f"{CHROMIUM} is missing: apt-get install chromium fonts-dejavu-core")
    if not started or not started[-1].is_connected():
        started.append(playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS))
    return started[-1]


class Tab:
    """One page of a person, and whatever went wrong in it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page, self.origin = page, origin
        self.faults: list[str] = []
        self.foreign: list[str] = []
        page.add_init_script(WATCH)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda said: self._hear(said.type, said.text))
        page.on("request", lambda asked: self._see(asked.url))

    def _hear(self, kind: str, text: str) -> None:
        is_network = "Failed to load resource" in text or "WebSocket connection" in text
        if kind == "error" and not is_network:
            self.faults.append(text)

    def _see(self, url: str) -> None:
        host = self.origin.partition("://")[2]
        if not url.startswith((self.origin, f"ws://{host}", "data:", "about:", "blob:")):
            self.foreign.append(url)

    def open(self, path: str) -> Page:
        """Go to a page and wait until its socket has said hello."""
        self.page.goto(self.origin + path)
        if path.startswith("/chats/"):
            self.ready()
        return self.page

    def ready(self) -> None:
        """Wait until the socket has said hello."""
        self.page.wait_for_selector("html[data-connection=ready]", state="attached")

    def send(self, text: str) -> None:
        """Write a message and press Enter."""
        self.page.fill("#composer", text)
        self.page.press("#composer", "Enter")

    def until(self, expression: str, *, seconds: float = 15.0) -> None:
        """Wait until an expression is true; the page's policy forbids Playwright's own way."""
        deadline = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            if time.monotonic() > deadline:
                pytest.fail(f"not true within {seconds} s: {expression}")
            self.page.wait_for_timeout(20)

    def done(self, count: int) -> None:
        """Wait until exactly so many turns are shown as answered."""
        self.until(
            f"document.querySelectorAll('#log .turn[data-status=completed]').length === {count}"
        )

    def streams(self, text: str) -> None:
        """Wait until the answer that is being written holds a text."""
        self.until(
            f"[...document.querySelectorAll('[data-live]')].pop()?.textContent.includes({text!r})"
        )

    def prose(self) -> list[str]:
        """The text of the answers."""
        return self.page.eval_on_selector_all(
            "#log .prose", "all => all.map(each => each.textContent.trim())"
        )

    def check(self) -> None:
        """Nothing ran that should not, nothing was refused, nobody else was asked."""
        refused = self.page.evaluate("window.__refused")
        assert (self.faults, self.foreign, refused) == ([], [], [])
        assert self.page.evaluate("window.__pwned") is None


OpenTab = Callable[..., Tab]


@pytest.fixture
def tab(browser: Browser, web: Web) -> Iterator[OpenTab]:
    """Open a tab for a person: ``tab(chat.owner, width=390, dark=True)``."""
    tabs: list[Tab] = []
    contexts = {}

    def make(
        owner=None, *, width: int = 1280, height: int = 800, dark: bool = False, **more
    ) -> Tab:
        origin = f"http://127.0.0.1:{web.port}"
        key = (owner and owner.pk, width, dark, str(more))
        if key not in contexts:
            contexts[key] = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
                **more,
            )
            contexts[key].set_default_timeout(15_000)
            if owner is not None:
                name, _, value = sign_in(owner).partition("=")
                contexts[key].add_cookies([{"name": name, "value": value, "url": origin}])
        tabs.append(Tab(contexts[key].new_page(), origin))
        return tabs[-1]

    yield make
    for each in tabs:
        if not each.page.is_closed():
            each.check()
    for context in contexts.values():
        context.close()


@pytest.fixture
def chat(scripted, worker) -> Chat:
    """A chat that the scripted model answers."""
    made = factories.chat(factories.person("maren", first_name="Maren", last_name="Kessler"))
    intake.register_endpoint(
        name="Scripted",
        base_url=scripted.base_url,
        api_key="",
        model="fake-chat",
        window=32_000,
        role="chat",
        priority=10,
    )
    return made
