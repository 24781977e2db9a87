"""URLs, parsed like Go's ``net/url``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from apiserver.apis.meta.validation import quote
from apiserver.cel import cost
from apiserver.cel.frame import Frame
from apiserver.cel.registry import NOMINAL, Library
from apiserver.cel.values import CelError, Opaque

LIBRARY: Final = Library()
_member, _function = LIBRARY.member, LIBRARY.function
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
_HOST: Final = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"\u0080-\U0010ffff]*")
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_PORT: Final = re.compile(r":[0-9]*")
_VALID_PATH: Final = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@\[\]/%]*")
_KEPT: Final = "$&+,/:;=@-_.~"


@dataclass(slots=True, eq=False)
class Url(Opaque):
    """The parts of a URL."""

    type_name: ClassVar[str] = "kubernetes.URL"
    text: str
    scheme: str = ""
    host: str = ""
    path: str = ""
    """As written."""
    query: str = ""

    def equals(self, other: Opaque) -> bool:
        """Return whether the texts are equal."""
        return isinstance(other, Url) and self.text == other.text


def parse_request_uri(text: str) -> Url:
    """Parse an absolute URL or path; raises CelError with the text of Go's ``url.ParseRequestURI``."""
    try:
        return _parse(text, request=True)
    except ValueError as error:
        raise CelError(f"parse {quote(text[:256])}: {error}") from None


def _parse(text: str, *, request: bool) -> Url:
    if _CONTROL.search(text):
        raise ValueError("net/url: invalid control character in URL")
    if not text:
        raise ValueError("empty url")
    if text == "*":
        return Url(text, path="*")
    found = _SCHEME.match(text)
    if text[0] == ":":
        raise ValueError("missing protocol scheme")
    scheme, rest = (found[1].lower(), text[found.end() :]) if found else ("", text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(text, scheme, query=query)
        if request:
            raise ValueError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise ValueError("first path segment in URL cannot contain colon")
    host = ""
    if rest.startswith("//") and (scheme or (not request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        host, rest = _authority(authority), slash + path
    if bad := _BAD_ESCAPE.search(rest):
        raise ValueError(f"invalid URL escape {quote(rest[bad.start() : bad.start() + 3])}")
    return Url(text, scheme, host, rest, query)


def _authority(text: str) -> str:
    user, at, host = text.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise ValueError("net/url: invalid userinfo")
    if at and (bad := _BAD_ESCAPE.search(user)):
        raise ValueError(f"invalid URL escape {quote(user[bad.start() : bad.start() + 3])}")
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise ValueError("missing ']' in host")
        port, zone = host[end + 1 :], host[:end].find("%25")
        name = host[:zone] if zone >= 0 else host[: end + 1]
    else:
        colon = host.rfind(":")
        name, port = host, host[colon:] if colon >= 0 else ""
    if port and not _PORT.fullmatch(port):
        raise ValueError(f"invalid port {quote(port)} after host")
    if escape := re.search("%..", name):
        raise ValueError(f"invalid URL escape {quote(escape[0])}")
    if not _HOST.fullmatch(name):
        raise ValueError(f"invalid character {quote(next(each for each in name if not _HOST.fullmatch(each)))} in host name")
    return host.replace("%25", "%")


def _without_fragment(text: str) -> Url:
    parsed = _parse(text.partition("#")[0], request=False)
    parsed.text = text
    return parsed


@_function("url", str)
def _url(frame: Frame, text: str) -> Url:
    frame.charge(cost.traversal(len(text)))
    try:
        parse_request_uri(text)
        return _without_fragment(text)
    except (CelError, ValueError) as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from None


@_function("isURL", str)
def _is_url(frame: Frame, text: str) -> bool:
    frame.cost += NOMINAL
    try:
        parse_request_uri(text)
    except CelError:
        return False
    return True


@_member("getScheme", Url)
def _scheme(frame: Frame, url: Url) -> str:
    frame.cost += NOMINAL
    return url.scheme


@_member("getHost", Url)
def _host(frame: Frame, url: Url) -> str:
    frame.cost += NOMINAL
    return url.host


@_member("getHostname", Url)
def _hostname(frame: Frame, url: Url) -> str:
    frame.cost += NOMINAL
    return _split(url.host)[0]


@_member("getPort", Url)
def _port(frame: Frame, url: Url) -> str:
    frame.cost += NOMINAL
    return _split(url.host)[1]


def _split(host: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    if not colon or not (port.isdigit() or not port):
        name, port = host, ""
    return (name[1:-1] if name.startswith("[") and name.endswith("]") else name), port


@_member("getEscapedPath", Url)
def _escaped_path(frame: Frame, url: Url) -> str:
    frame.cost += NOMINAL
    if _VALID_PATH.fullmatch(url.path):
        return url.path
    return quote_from_bytes(unquote_to_bytes(url.path), safe=_KEPT)


@_member("getQuery", Url)
def _query(frame: Frame, url: Url) -> dict[str, list[str]]:
    frame.cost += NOMINAL
    found: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        key, _, value = pair.partition("=")
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        found.setdefault(_unescaped(key), []).append(_unescaped(value))
    return found


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="replace")
