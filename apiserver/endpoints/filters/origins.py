"""Stop web pages of other hosts from opening streams (RFC 6455, section 10.2; cross-site websocket hijacking).

Allowed are pages of this server and of ``--cors-allowed-origins``. Programs send ``Origin`` too, so :func:`is_browser`
checks other header fields (``docs/decisions/streams.md``).

The aggregator replaces ``Host`` by the address that it dials (``k8s.io/apiserver/pkg/util/proxy.NewRequestForProxy``).
So through kube-apiserver only named origins are allowed, intentionally: by ``services/…/proxy`` its host serves any
tenant's pages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from apiserver.apis.meta.errors import Forbidden
from apiserver.endpoints.http import upgrade
from apiserver.endpoints.http.messages import Request

FLAG: Final = "--cors-allowed-origins"
NULL: Final = "null"
"""Of sandboxed frames and files, available to any page."""
_MAX_ORIGIN: Final = 512
"""A scheme, a name of 253 characters and a port."""
_HTTPS: Final = 443
_PLACE: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[0-9a-z._-]+)(:(?P<port>[0-9]{1,5}))?")
_METADATA: Final = "sec-fetch-"
"""Pages cannot set it (Fetch, "forbidden request-header")."""
_BROWSER: Final = "Mozilla/"
"""Of every browser."""
_STARTS: Final = ("^", "//")
_ENDS: Final = ("$", ":")


class Origins:
    """Refuses browsers' streams from pages of other hosts, unless their origins are allowed."""

    def __init__(self, allowed: Sequence[re.Pattern[str]] = ()) -> None:
        """Take patterns; an origin of another host must match one."""
        self._allowed = tuple(allowed)

    def check(self, request: Request) -> None:
        """Raise Forbidden for a browser's stream from a page of another host."""
        headers = request.headers
        if not upgrade.is_upgrade(request) or not is_browser(headers):
            return
        for origin in headers.getall("Origin", ()):
            if not is_allowed(origin, headers.get("Host", ""), self._allowed):
                shown = origin[:_MAX_ORIGIN]
                raise Forbidden(f'origin "{shown}" may not open streams: allow it with {FLAG}')


def is_browser(headers: Mapping[str, str]) -> bool:
    """Return whether a browser sent the handshake, by fields that pages cannot set and Kubernetes' clients do not send."""
    return (
        headers.get("User-Agent", "").startswith(_BROWSER)
        or "Accept-Language" in headers
        or any(name.lower().startswith(_METADATA) for name in headers)
    )


def is_allowed(origin: str, host: str, allowed: Sequence[re.Pattern[str]]) -> bool:
    """Return whether ``origin``, not ``null``, may open streams: it is ``https://`` and the server's ``host``, or matches a pattern."""
    if not origin or origin == NULL or len(origin) > _MAX_ORIGIN:
        return False
    return _is_own(origin, host) or any(each.search(origin) for each in allowed)


def _is_own(origin: str, host: str) -> bool:
    scheme, _, page = origin.lower().partition("://")
    place = _place(page)
    return scheme == "https" and place is not None and place == _place(host.lower())


def _place(text: str) -> tuple[str, int] | None:
    match = _PLACE.fullmatch(text)
    return (match["name"], int(match["port"] or _HTTPS)) if match else None


def patterns(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Compile the flag's regular expressions, which must pin both ends of the host; raises ValueError.

    Go's rule (``validateCorsAllowedOriginList``, CVE-2022-1996): ``^`` or ``//`` for the start, ``$`` or ``:`` for the
    end.
    """
    found = []
    for text in texts:
        if not any(each in text for each in _STARTS) or not any(each in text for each in _ENDS):
            raise ValueError(f"{FLAG}: {text!r} does not pin the start and the end of the host (write ^https://console\\.example\\.com$)")
        try:
            found.append(re.compile(text))
        except re.error as error:
            raise ValueError(f"{FLAG}: {text!r} is not a valid regular expression: {error}") from error
    return tuple(found)
