from __future__ import annotations

import pytest

from importer import addresses
from importer.failures import ImportFailed


@pytest.mark.parametrize(
    ("url", "shown", "target"),
    [
        ("http://host/a", "http://host/a", "/a"),
        ("https://Host:8443/a/b.img?X-Signature=secret#f", "https://host:8443/a/b.img", "/a/b.img?X-Signature=secret"),
        ("https://host:443", "https://host/", "/"),
        ("http://[fd00::1]:80/x", "http://[fd00::1]/x", "/x"),
        ("http://host:79/~a!", "http://host:79/~a!", "/~a!"),
    ],
)
def test_an_address_is_shown_without_its_query(url: str, shown: str, target: str) -> None:
    found = addresses.parse(url)

    assert (str(found), found.target) == (shown, target)


@pytest.mark.parametrize(
    "url",
    ["ftp://host/a", "file:///etc/passwd", "http://", "http:///a", "http://u:p@host/a", "http://:p@host/a", "http://@host/a",
     "http://host/a b",
     "http://host/a\r\nX: y",
     "http://host:99999/", "http://host:x/", "http://[fd00::1/", "http://hö/", ""],
)  # fmt: skip
def test_invalid_urls_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(ImportFailed) as refused:
        addresses.parse(url)

    assert "host" not in str(refused.value).replace("no host", "")
    assert "u:p" not in str(refused.value)


def test_credentials_are_for_one_scheme_host_and_port() -> None:
    assert addresses.parse("https://host/a?b").origin == ("https", "host", 443)


@pytest.mark.parametrize(
    ("origin", "location", "to"),
    [
        ("http://host/a/b", "c?d", "http://host:80/a/c?d"),
        ("http://host/a/b", "/c", "http://host:80/c"),
        ("http://host/a", "https://other/x", "https://other:443/x"),
        ("https://host/a", "//other/x", "https://other:443/x"),
        ("http://host/a", "/files/my image.img", "http://host:80/files/my%20image.img"),
        ("http://host/a", " /b%20c?d e ", "http://host:80/b%20c?d%20e"),
        ("http://host/a", "/b\u00c3\u00a4", "http://host:80/b%C3%A4"),
    ],
)
def test_a_redirect_is_followed(origin: str, location: str, to: str) -> None:
    assert addresses.redirected(addresses.parse(origin), location).full == to


@pytest.mark.parametrize(
    "location",
    ["http://other/x", "file:///etc/passwd", "gopher://host/", "https://u:p@host/", "https://[x/", "https://host/\x01"],
)
def test_a_redirect_to_somewhere_less_safe_is_not(location: str) -> None:
    with pytest.raises(ImportFailed, match="https://host/a redirects"):
        addresses.redirected(addresses.parse("https://host/a?secret=1"), location)
