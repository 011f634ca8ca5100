"""Addresses that Hermes connects to, and those that it never does (S40 to S48)."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from hermes.lib.chat import ChatMessage, ChatModelError, ChatRequest, ErrorKind, Role
from hermes.lib.chat_openai import OpenAIChatModel
from hermes.lib.outbound import (
    BadAddress,
    Policy,
    Reach,
    check_addresses,
    check_base_url,
    origin,
    parse_base_url,
    reach,
)
from tests.scripted import Behaviour, ScriptedServer


def refusal(url: str, **changes: Any) -> str:
    options: dict[str, Any] = {"allow_loopback": False, "allowed_hosts": ()} | changes
    with pytest.raises(BadAddress) as caught:
        check_base_url(url, **options)
    return str(caught.value)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
    """Let names stand for these addresses: one list a look-up, the last one for ever."""
    rest = list(answers)

    def getaddrinfo(host: str, port: int, **kwargs: Any) -> list[Any]:
        found = rest.pop(0) if len(rest) > 1 else rest[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr("hermes.lib.outbound.socket.getaddrinfo", getaddrinfo)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.org/v1",
        "//api.example.org/v1",
        "file:///etc/passwd",
        "gopher://127.0.0.1:70/x",
        "ftp://example.org/",
        "https://",
        "https:///v1",
        "https://user:pass@example.org/v1",
        "https://example.org@evil.example/v1",
        "https://example.org\\@evil.example/v1",
        "https://example.org#@evil.example/v1",
        "https://example.org?x=@evil.example/v1",
        "https://exam ple.org/v1",
        "https://example.org/v1\r\nHost: evil.example",
        "https://example.org\t/v1",
        "https://exa%6dple.org/v1",
        "https://example.org:0/v1",
        "https://example.org:65536/v1",
        "https://example.org:abc/v1",
        "https://.example.org/v1",
        "https://a..b/v1",
        "https://-a.example/v1",
        "https://[::1/v1",
        "https://[fe80::1%eth0]/v1",
        f"https://{'a' * 64}.example/v1",
    ],
)
def test_an_address_of_another_form_is_refused(url: str) -> None:
    assert refusal(url, allow_loopback=True)


@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "127.0.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1"),
        *("127.0.0.01", "1.2.3.4.5", "256.0.0.1", "0", "a.0x7f", "127.0.0.1.1", "１２７.0.0.1"),
    ],
)
def test_a_number_in_an_unusual_form_is_no_host(host: str) -> None:
    assert refusal(f"http://{host}/v1", allow_loopback=True)


NEVER = [
    *("0.0.0.0", "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1"),
    *("::", "fe80::1", "fec0::1", "ff02::1", "fd00:ec2::254", "2001:db8::1", "100::1"),
    *("::ffff:a9fe:a9fe", "::ffff:169.254.169.254", "::a9fe:a9fe", "::127.0.0.1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8"),
    *("2002:a9fe:a9fe::1", "2002:7f00:1::", "2002:a00:1::1", "2001:0:7f00:1::"),
    *("2a00::5efe:127.0.0.1", "2a00::200:5efe:10.0.0.1"),
]
PRIVATE = ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fd12::1"]
PRIVATE += ["::ffff:10.0.0.1", "::ffff:c0a8:101"]
LOOPBACK = ["127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"]
PUBLIC = ["8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize(
    ("expected", "addresses"),
    [
        (Reach.NEVER, NEVER),
        (Reach.PRIVATE, PRIVATE),
        (Reach.LOOPBACK, LOOPBACK),
        (Reach.PUBLIC, PUBLIC),
    ],
)
def test_where_an_address_leads(expected: Reach, addresses: list[str]) -> None:
    found = {address: reach(ipaddress.ip_address(address)) for address in addresses}
    assert found == dict.fromkeys(addresses, expected)


@pytest.mark.parametrize("address", [*NEVER, *PRIVATE, *LOOPBACK])
def test_nothing_but_public_addresses_by_default(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert refusal(f"https://{host}/v1")


@pytest.mark.parametrize("address", NEVER)
def test_no_setting_opens_what_is_never_connected_to(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    words = refusal(f"https://{host}/v1", allow_loopback=True, allowed_hosts=[address, host])
    assert "never" in words


def test_loopback_opens_by_its_setting_also_over_http() -> None:
    for url in ("http://127.0.0.1:8080/v1", "http://localhost:8080/v1", "https://[::1]/v1"):
        check_base_url(url, allow_loopback=True, allowed_hosts=())
        assert "HERMES_ALLOW_LOOPBACK_MODELS" in refusal(url)


def test_a_private_host_opens_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolving(monkeypatch, ["10.1.2.3"])
    assert "HERMES_MODEL_HOSTS" in refusal("https://llm.lan/v1")
    assert "HERMES_MODEL_HOSTS" in refusal("https://llm.lan/v1", allowed_hosts=["other.lan"])
    check_base_url("https://LLM.lan./v1", allow_loopback=False, allowed_hosts=["llm.lan"])
    check_base_url("https://10.1.2.3/v1", allow_loopback=False, allowed_hosts=["10.1.2.3"])
    check_base_url("http://llm.lan/v1", allow_loopback=False, allowed_hosts=["llm.lan"])
    assert "HERMES_MODEL_HOSTS" in refusal("http://llm.lan/v1", allow_loopback=True)


def test_http_to_a_public_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["8.8.8.8"])
    named = ["api.example.org"]
    assert "https" in refusal("http://api.example.org/v1", allow_loopback=True)
    assert "https" in refusal("http://api.example.org/v1", allowed_hosts=named)
    resolving(monkeypatch, ["10.1.2.3", "8.8.8.8"])
    assert "https" in refusal("http://api.example.org/v1", allowed_hosts=named)
    resolving(monkeypatch, ["8.8.8.8"])
    check_base_url("https://api.example.org/v1", allow_loopback=False, allowed_hosts=())


def test_one_bad_address_among_good_ones_is_enough() -> None:
    base = parse_base_url("https://api.example.org/v1")
    addresses = [ipaddress.ip_address(text) for text in ("8.8.8.8", "169.254.169.254")]
    check_addresses(base, addresses[:1], Policy())
    with pytest.raises(BadAddress):
        check_addresses(base, addresses, Policy())


def test_an_unknown_name_is_said_in_words() -> None:
    assert "not known" in refusal("https://no-such-host.invalid/v1")


def test_the_message_of_a_refusal_holds_no_password() -> None:
    assert "hunter2" not in refusal("https://user:hunter2@example.org/v1")


def test_a_key_is_bound_to_scheme_host_and_port() -> None:
    same = {
        origin(u) for u in ("https://A.example/v1", "https://a.example:443/x", "https://a.example.")
    }
    assert same == {"https://a.example:443"}
    assert origin("http://[::1]:8080/v1") == "http://[::1]:8080"


def ask(base_url: str, **options: Any) -> ErrorKind | None:
    model = OpenAIChatModel("m", 8192, base_url, "key-of-the-operator", "fake-chat", **options)
    try:
        list(model.open(ChatRequest([ChatMessage(Role.USER, "hello")])))
    except ChatModelError as error:
        return error.kind
    return None


def test_a_name_that_changes_its_meaning_is_judged_where_it_is_connected_to(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, ["8.8.8.8"], ["127.0.0.1"])
    url = f"https://rebind.example:{scripted.port}/v1"
    check_base_url(url, allow_loopback=False, allowed_hosts=())
    assert ask(url) is ErrorKind.BLOCKED
    assert scripted.report()["requests"] == []


def test_a_name_is_looked_up_once_a_connection_and_the_answer_is_used(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **kwargs: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    url = f"http://model.example:{scripted.port}/v1"
    assert ask(url, allow_loopback=True) is None
    assert asked == ["model.example"]
    assert scripted.requests()[0]["headers"]["host"] == f"model.example:{scripted.port}"


def test_a_dead_first_address_leaves_time_for_the_next(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, ["127.0.0.2", "127.0.0.1"])  # nobody listens on the first one
    assert ask(f"http://model.example:{scripted.port}/v1", allow_loopback=True) is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(scripted: ScriptedServer, status: int) -> None:
    headers = {"Location": f"{scripted.base_url}/chat/completions"}
    scripted.script(default=Behaviour(status=status, headers=headers))
    assert ask(scripted.base_url, allow_loopback=True) is ErrorKind.BLOCKED
    assert len(scripted.requests()) == 1
