"""Impersonation (``kubectl --as``) for clients that connect directly.

The aggregator applies these headers itself and forwards none. The user needs the verb ``impersonate`` on all that the headers name. Each
check is a normal, cached authorization. Kubernetes' constrained impersonation (KEP-5284) works only through kube-apiserver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from apiserver.apis.meta.errors import BadRequest
from apiserver.apis.meta.users import AUTHENTICATED, UNAUTHENTICATED, User
from apiserver.endpoints.filters.authorization import Authorizer, forbidden
from apiserver.endpoints.http.messages import Request
from apiserver.endpoints.requestinfo import RequestInfo

USER: Final = "Impersonate-User"
GROUP: Final = "Impersonate-Group"
UID: Final = "Impersonate-Uid"
EXTRA: Final = "impersonate-extra-"
_AUTHENTICATION: Final = "authentication.k8s.io"
_ANONYMOUS: Final = "system:anonymous"
_SUBDOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Impersonation:
    """Applies the impersonation headers."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def __call__(self, request: Request, user: User) -> User | None:
        """Return the impersonated user; None without the headers.

        Raises:
            BadRequest: groups, uid or extra without a user.
            Forbidden: the user may not impersonate.
            InternalError: no decision is possible.
        """
        wanted = wanted_user(request.headers)
        if wanted is None:
            return None
        for each in _checks(wanted):
            decision = await self._authorizer.decide(user, each)
            if not decision.allowed:
                raise forbidden(user, each, decision.reason)
        return acting(wanted)


def _checks(wanted: User) -> Iterator[RequestInfo]:
    """Yield the required permissions, the user's name first. If that fails, the error does not reveal groups and extra."""
    if (account := service_account(wanted.name)) is not None:
        yield _about("", "serviceaccounts", account[1], namespace=account[0])
    else:
        yield _about("", "users", wanted.name)
    if wanted.uid:
        yield _about(_AUTHENTICATION, "uids", wanted.uid)
    for group in wanted.groups:
        yield _about("", "groups", group)
    for key, values in wanted.extra.items():
        for value in values:
            yield _about(_AUTHENTICATION, "userextras", value, subresource=key)


def _about(group: str, resource: str, name: str, *, namespace: str = "", subresource: str = "") -> RequestInfo:
    return RequestInfo(
        method="", path="", verb="impersonate", is_resource=True, group=group, version="v1", namespace=namespace, resource=resource,
        subresource=subresource, name=name,
    )  # fmt: skip


def wants(request: Request) -> bool:
    """Return whether the request has impersonation headers."""
    for each in request.headers:  # noqa: SIM110 - a generator for any() costs more than all that is asked here
        if each[:12].lower() == "impersonate-":
            return True
    return False


def wanted_user(headers: Mapping[str, str]) -> User | None:
    """Return the user that the headers name.

    Raises:
        BadRequest: attributes without a name.
    """
    extra: dict[str, list[str]] = {}
    groups: list[str] = []
    name = uid = ""
    for header, value in headers.items():
        lower = header.lower()
        if lower == GROUP.lower():
            groups.append(value)
        elif lower == USER.lower():
            name = name or value
        elif lower == UID.lower():
            uid = uid or value
        elif lower.startswith(EXTRA):
            extra.setdefault(unquote(lower.removeprefix(EXTRA)), []).append(value)
    if not name:
        if groups or uid or extra:
            raise BadRequest("requested to impersonate groups, a uid or extra values without impersonating a user name")
        return None
    return User(name, tuple(groups), uid, {key: tuple(values) for key, values in extra.items()})


def acting(wanted: User) -> User:
    """Return the user with the groups that its kind implies."""
    groups = wanted.groups
    account = service_account(wanted.name)
    if not groups and account is not None:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    if wanted.name == _ANONYMOUS:
        groups = groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups and AUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return User(wanted.name, groups, wanted.uid, wanted.extra)


def service_account(name: str) -> tuple[str, str] | None:
    """Return namespace and name of a service account's user name; None for other users."""
    parts = name.removeprefix("system:serviceaccount:").split(":")
    if not name.startswith("system:serviceaccount:") or len(parts) != 2:
        return None
    return (parts[0], parts[1]) if _LABEL.fullmatch(parts[0]) and _SUBDOMAIN.fullmatch(parts[1]) else None
