"""The scripted server in a process of its own, with the same controls over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .behaviour import Behaviour, Rule
from .server import wait_for


class RemoteScripted:
    """Controls of a scripted server elsewhere; the same methods as ``ScriptedServer``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def base_url(self) -> str:
        """The base URL of the API."""
        return f"{self.address}/v1"

    def _call(self, path: str, data: dict[str, Any] | None = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        with self._opener.open(
            urllib.request.Request(self.address + path, data=body), timeout=10
        ) as answer:
            return json.load(answer)

    def script(
        self,
        model: str = "fake-chat",
        default: Behaviour | None = None,
        *,
        queue: Iterable[Behaviour] | None = None,
        rules: Iterable[Rule] | None = None,
    ) -> None:
        """Set what a model does; what is not given stays."""
        data: dict[str, Any] = {"model": model}
        if default is not None:
            data["default"] = default.as_json()
        if queue is not None:
            data["queue"] = [one.as_json() for one in queue]
        if rules is not None:
            data["rules"] = [one.as_json() for one in rules]
        self._call("/__script", data)

    def strict(self, on: bool) -> None:
        """Refuse invalid requests, or only count them."""
        self._call("/__script", {"strict": on})

    def release(self, name: str) -> None:
        """Let everyone pass who waits, or will wait, for this name."""
        self._call("/__release", {"name": name})

    def reset(self) -> None:
        """Forget scripts and requests."""
        self._call("/__reset", {})

    def report(self) -> dict[str, Any]:
        """What ``GET /__requests`` answers."""
        return self._call("/__requests")

    def requests(self, model: str | None = None) -> list[dict[str, Any]]:
        """The requests so far, oldest first."""
        seen = self.report()["requests"]
        return [one for one in seen if model is None or one["model"] == model]

    def violations(self) -> list[str]:
        """Every rule that a request broke."""
        return [words for seen in self.requests() for words in seen["violations"]]

    def wait(self, condition: Callable[[dict[str, Any]], Any], seconds: float = 5.0) -> Any:
        """The first true value of a condition on the report; fails after so many seconds."""
        return wait_for(self.report, condition, seconds)


@contextmanager
def scripted_process() -> Iterator[RemoteScripted]:
    """Start ``python -m tests.scripted``, and end it afterwards."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.scripted", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield RemoteScripted(json.loads(process.stdout.readline())["address"])
        finally:
            process.terminate()
            process.wait(10)
