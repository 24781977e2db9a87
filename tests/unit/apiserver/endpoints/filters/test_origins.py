from __future__ import annotations

from typing import Any

import pytest
import requests

from apiserver.apis.meta.errors import Forbidden
from apiserver.endpoints.filters.origins import Origins, is_allowed, patterns
from apiserver.endpoints.http.heads import Fields, Head
from apiserver.endpoints.http.messages import Request

HOST = "api.example.com:8443"
UPGRADE = (("Connection", "Upgrade"), ("Upgrade", "websocket"))
METADATA = (("Sec-Fetch-Mode", "websocket"), ("Sec-Fetch-Dest", "empty"), ("Sec-Fetch-Site", "cross-site"))
AGENT = ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
LANGUAGE = ("Accept-Language", "en-US,en;q=0.5")
EVIL = ("Origin", "https://evil.example")


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("https://api.example.com:8443", HOST, True),
        ("https://API.Example.com:8443", HOST, True),
        ("https://api.example.com:8443", "API.Example.com:8443", True),
        ("https://api.example.com", "api.example.com", True),
        ("https://api.example.com:443", "api.example.com", True),
        ("https://api.example.com", "api.example.com:443", True),
        ("https://[::1]:8443", "[::1]:8443", True),
        ("https://10.0.0.1", "10.0.0.1", True),
        ("http://api.example.com:8443", HOST, False),  # an attacker on the path can forge that page
        ("https://api.example.com", HOST, False),
        ("https://api.example.com:8444", HOST, False),
        ("https://evil.example", HOST, False),
        ("https://api.example.com.evil.example:8443", HOST, False),
        ("https://api.example.com:8443.evil.example", HOST, False),
        ("https://api.example.com:8443@evil.example", HOST, False),
        ("https://evil.example@api.example.com:8443", HOST, False),
        ("https://api.example.com:8443/", HOST, False),
        ("https://api.example.com:8443 https://evil.example", HOST, False),
        ("https://api.example.com:x", HOST, False),
        ("https://[::1", "[::1", False),
        ("null", HOST, False),
        ("", HOST, False),
        ("https://", "", False),
        ("https:", "", False),
        ("chrome-extension://api.example.com:8443", HOST, False),
        ("//api.example.com:8443", HOST, False),
        ("api.example.com:8443", HOST, False),
        ("https://" + "a" * 600, "a" * 600, False),
    ],
)
def test_a_page_of_this_server_may_and_no_other(origin: str, host: str, *, allowed: bool) -> None:
    assert is_allowed(origin, host, ()) is allowed


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://console.example.com", True),
        ("https://a.apps.example.com:8080", True),
        ("https://console.example.com.evil.example", False),
        ("https://evilconsole.example.com", False),
        ("https://apps.example.com", False),
        ("null", False),
        ("", False),
    ],
)
def test_pages_that_the_operator_names_may(origin: str, *, allowed: bool) -> None:
    named = patterns([r"^https://console\.example\.com$", r"//[a-z]+\.apps\.example\.com(:|$)", "^null$", "^$"])
    assert is_allowed(origin, HOST, named) is allowed


@pytest.mark.parametrize("text", ["example", ".*", r"console\.example\.com$", "^https", "^https://(a$"])
def test_a_pattern_that_lets_other_origins_in_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--cors-allowed-origins"):
        patterns([text])


def request(*pairs: tuple[str, str]) -> Request:
    carrier: Any = None
    return Request(Head("GET", "/", Fields([("Host", HOST), *pairs]), old=False), carrier)


@pytest.mark.parametrize(
    "pairs",
    [
        [EVIL, *METADATA],  # not a websocket: the browser hides the answer
        [*UPGRADE, *METADATA],
        [*UPGRADE, *METADATA, ("Origin", f"https://{HOST}")],
        [*UPGRADE, EVIL],  # from websocket-client, which kubernetes.stream uses
        [*UPGRADE, EVIL, ("User-Agent", "fabric8-kubernetes-client/6.13.4"), ("Accept-Encoding", "gzip")],
        [*UPGRADE, EVIL, ("User-Agent", "OpenAPI-Generator/37.0.2/python (like Mozilla/5.0)")],
        [*UPGRADE, ("Origin", "null")],
    ],
)
def test_programs_and_ordinary_requests_pass(pairs: list[tuple[str, str]]) -> None:
    Origins().check(request(*pairs))


def test_requests_sends_no_field_of_a_browser() -> None:
    fields = [(name, str(value)) for name, value in requests.Session().headers.items() if name != "Connection"]
    assert "User-Agent" in dict(fields)
    Origins().check(request(*UPGRADE, EVIL, *fields))


@pytest.mark.parametrize(
    "pairs",
    [
        *([*UPGRADE, EVIL, each] for each in (*METADATA, AGENT, LANGUAGE, ("sec-fetch-storage-access", "none"))),
        [*UPGRADE, ("Origin", f"https://{HOST}"), EVIL, *METADATA],
        [("Connection", "keep-alive, upgrade"), ("Upgrade", "WebSocket"), EVIL, AGENT],
        [*UPGRADE, EVIL, AGENT, ("X-Forwarded-Host", "evil.example")],
    ],
)
def test_cross_origin_stream_is_refused_naming_the_flag(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(Forbidden, match=r'origin "https://evil.example" .*--cors-allowed-origins'):
        Origins().check(request(*pairs))


def test_of_a_long_origin_the_refusal_repeats_little() -> None:
    with pytest.raises(Forbidden) as refused:
        Origins().check(request(*UPGRADE, AGENT, ("Origin", "https://" + "a" * 10_000)))
    assert len(refused.value.message) < 1000
