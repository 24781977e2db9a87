"""Pages of other hosts may not open streams (RFC 6455, section 10.2; cross-site websocket hijacking).

A browser lets any page open a websocket to any host, with the user's cookies and certificate, and through a ``kubectl proxy`` on loopback
as the user: it only says in ``Origin`` whose page it is. Pages of this very server may, and those that the operator names
(``--cors-allowed-origins``).

Programs say an ``Origin``, too: websocket-client, and with it Python's ``kubernetes.stream``, and fabric8. What tells a browser are header
fields that no page can leave out or change (:func:`is_browser`). Watches and other reads are open to all, as those of Go's servers are.

The aggregator replaces ``Host`` by the address that it dials, adds no ``X-Forwarded-Host`` to an upgrade and passes the other fields on
(``k8s.io/apiserver/pkg/util/proxy.NewRequestForProxy``). So of a request through kube-apiserver no page is "of this server" unless it is
named. That is meant: what kube-apiserver's own host serves to browsers is, by ``services/…/proxy``, the pages of any tenant.
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
"""The origin of sandboxed frames and of files: of anybody."""
_MAX_ORIGIN: Final = 512
"""Longer than any: a scheme, a name of 253 characters and a port."""
_HTTPS: Final = 443
_PLACE: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[0-9a-z._-]+)(:(?P<port>[0-9]{1,5}))?")
"""In lower case."""
_METADATA: Final = "sec-fetch-"
"""Fetch metadata: a name that begins with Sec- is closed to pages (Fetch, "forbidden request-header")."""
_BROWSER: Final = "Mozilla/"
"""Every browser's User-Agent begins with it."""
_STARTS: Final = ("^", "//")
_ENDS: Final = ("$", ":")


class Origins:
    """Judges the origins of streams."""

    def __init__(self, allowed: Sequence[re.Pattern[str]] = ()) -> None:
        """Take patterns, of which one must be found in an origin of another host."""
        self._allowed = tuple(allowed)

    def check(self, request: Request) -> None:
        """Let a request for a stream pass that opens no websocket, comes from a program, or from a page that may.

        Raises:
            Forbidden: a page of another host opens it.
        """
        headers = request.headers
        if not upgrade.is_upgrade(request) or not is_browser(headers):
            return
        for origin in headers.getall("Origin", ()):
            if not is_allowed(origin, headers.get("Host", ""), self._allowed):
                shown = origin[:_MAX_ORIGIN]
                raise Forbidden(f'a page of origin "{shown}" may not open streams here: {FLAG} does not allow it')


def is_browser(headers: Mapping[str, str]) -> bool:
    """Return whether a browser sends the request, by fields that a page cannot leave out of a websocket's handshake.

    Only browsers send ``Sec-Fetch-*``, but not every browser does so with a handshake, and none to a host of plain HTTP other than
    loopback. So ``User-Agent`` and ``Accept-Language`` tell a browser, too: pages cannot set them, and clients of Kubernetes send others.
    """
    return (
        headers.get("User-Agent", "").startswith(_BROWSER)
        or "Accept-Language" in headers
        or any(name.lower().startswith(_METADATA) for name in headers)
    )


def is_allowed(origin: str, host: str, allowed: Sequence[re.Pattern[str]]) -> bool:
    """Return whether pages of ``origin`` may open streams of ``host``, which is what the request's field ``Host`` says."""
    if not origin or origin == NULL or len(origin) > _MAX_ORIGIN:
        return False
    return _is_own(origin, host) or any(each.search(origin) for each in allowed)


def _is_own(origin: str, host: str) -> bool:
    """Return whether an origin (RFC 6454, section 7) is this server's: https, the same name and port."""
    scheme, _, page = origin.lower().partition("://")
    place = _place(page)
    return scheme == "https" and place is not None and place == _place(host.lower())


def _place(text: str) -> tuple[str, int] | None:
    """Return name and port of ``name[:port]``, None if it is something else."""
    match = _PLACE.fullmatch(text)
    return (match["name"], int(match["port"] or _HTTPS)) if match else None


def patterns(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Return the regular expressions of the flag, each of which must say where the host begins and ends.

    The rule is Go's (``validateCorsAllowedOriginList``, CVE-2022-1996): ``^`` or ``//`` for the beginning, ``$`` or ``:`` for the end.

    Raises:
        ValueError: one of them cannot be read, or would let strangers in by the middle of a name.
    """
    found = []
    for text in texts:
        if not any(each in text for each in _STARTS) or not any(each in text for each in _ENDS):
            raise ValueError(f"{FLAG}: {text!r} does not pin the start and the end of the host (write ^https://console\\.example\\.com$)")
        try:
            found.append(re.compile(text))
        except re.error as error:
            raise ValueError(f"{FLAG}: {text!r} is no regular expression: {error}") from error
    return tuple(found)
