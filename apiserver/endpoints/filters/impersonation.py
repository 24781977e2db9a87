"""Impersonation (``kubectl --as``) for clients that connect directly.

The aggregator applies these headers itself. Port of ``k8s.io/apiserver/pkg/endpoints/filters/impersonation`` 1.36:
constrained impersonation (KEP-5284, on by default), from the narrowest mode to the widest, then the old verb
``impersonate``. Each check is a normal, cached authorization.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from apiserver.apis.meta.errors import BadRequest, Forbidden
from apiserver.apis.meta.users import AUTHENTICATED, MASTERS, UNAUTHENTICATED, User
from apiserver.endpoints.filters.authorization import Authorizer, forbidden
from apiserver.endpoints.http.messages import Request
from apiserver.endpoints.requestinfo import RequestInfo

USER: Final = "Impersonate-User"
GROUP: Final = "Impersonate-Group"
UID: Final = "Impersonate-Uid"
EXTRA: Final = "impersonate-extra-"
_AUTHENTICATION: Final = "authentication.k8s.io"
_NODE_KEY: Final = "authentication.kubernetes.io/node-name"
_NODE_KEYS: Final = "authentication.kubernetes.io/associated-node-keys"
_NODES: Final = "system:nodes"
_ANONYMOUS: Final = "system:anonymous"
_SUBDOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_EXTRA_KEY: Final = re.compile(r"(?P<domain>[^/]+)/(?P<path>[A-Za-z0-9/\-._~%!$&'()*+,;=:]+)")
_MANY: Final = 4


class Impersonation:
    """Checks and applies the headers."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def __call__(self, request: Request, user: User, info: RequestInfo) -> User | None:
        """Return the impersonated user; None without the headers.

        Raises BadRequest without a user name, Forbidden, or InternalError without decision.
        """
        wanted = wanted_user(request.headers)
        if wanted is None:
            return None
        refusals: list[Forbidden] = []
        for mode in MODES:
            if mode.applies(wanted, user):
                try:
                    return await self._try(mode, wanted, user, info)
                except Forbidden as error:
                    refusals.append(error)
        raise refusals[0]  # never empty, because the last mode always applies

    async def _try(self, mode: Mode, wanted: User, user: User, info: RequestInfo) -> User:
        asking = mode.requestor(user)
        if mode.name:
            await self._check(asking, replace(info, verb=f"impersonate-on:{mode.name}:{info.verb}"))
        for each in mode.checks(wanted, asking):
            if each.many is not None and await self._allowed(asking, each.many):
                continue
            for one in each.ones:
                await self._check(asking, one)
        return acting(wanted, constrained=bool(mode.name))

    async def _allowed(self, user: User, info: RequestInfo) -> bool:
        return (await self._authorizer.decide(user, info)).allowed

    async def _check(self, user: User, info: RequestInfo) -> None:
        decision = await self._authorizer.decide(user, info)
        if not decision.allowed:
            raise forbidden(user, info, decision.reason)


@dataclass(frozen=True, slots=True)
class Checks:
    """Permissions to check: all of ``ones``, or the single ``many``."""

    ones: tuple[RequestInfo, ...]
    many: RequestInfo | None = None


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode of impersonation; the old one has an empty name."""

    name: str

    @property
    def verb(self) -> str:
        """Verb to authorize on the impersonated user."""
        return f"impersonate:{self.name}" if self.name else "impersonate"

    def applies(self, wanted: User, requestor: User) -> bool:
        """Return whether this mode may impersonate such a user, by name, for this requestor."""
        bare = not wanted.groups and not wanted.uid and not wanted.extra
        node, account = node_name(wanted.name), service_account(wanted.name)
        match self.name:
            case "associated-node":
                own = requestor.extra.get(_NODE_KEY, ())
                return bare and node is not None and service_account(requestor.name) is not None and own == (node,)
            case "arbitrary-node":
                return bare and node is not None
            case "serviceaccount":
                return bare and account is not None
            case "user-info":
                return node is None and account is None
            case _:
                return True

    def requestor(self, user: User) -> User:
        """Return the user to authorize; associated-node keeps only the keys of ``extra``, so a DaemonSet's pods share answers."""
        if self.name != "associated-node":
            return user
        return User(user.name, user.groups, user.uid, {_NODE_KEYS: tuple(sorted(user.extra))})

    def checks(self, wanted: User, requestor: User) -> Iterator[Checks]:
        """Yield groups of required permissions, first for the name: its refusal must not reveal groups and extra.

        Raises Forbidden for groups or extra that the mode never allows.
        """
        yield Checks((self._name(wanted.name),))
        if wanted.uid:
            yield Checks((self._about(_AUTHENTICATION, "uids", wanted.uid),))
        if wanted.groups:
            yield self._groups(wanted.groups, requestor)
        if wanted.extra:
            yield self._extra(wanted.extra, requestor)

    @property
    def _group(self) -> str:
        return _AUTHENTICATION if self.name else ""

    def _name(self, name: str) -> RequestInfo:
        if (account := service_account(name)) is not None:
            return self._about(self._group, "serviceaccounts", account[1], namespace=account[0])
        if self.name and (node := node_name(name)) is not None:
            return self._about(self._group, "nodes", "*" if self.name == "associated-node" else node)
        return self._about(self._group, "users", name)

    def _groups(self, groups: Sequence[str], requestor: User) -> Checks:
        ones = tuple(self._about(self._group, "groups", each) for each in groups)
        if not self.name:
            return Checks(ones)
        if "" in groups:
            raise forbidden(requestor, self._about(self._group, "groups", ""), "impersonating the empty string group is not allowed")
        if MASTERS in groups:
            about = self._about(self._group, "groups", MASTERS)
            raise forbidden(requestor, about, "impersonating the system:masters group is not allowed")
        return Checks(ones, self._about(self._group, "groups", "*") if len(groups) >= _MANY else None)

    def _extra(self, extra: Mapping[str, tuple[str, ...]], requestor: User) -> Checks:
        pairs = [(key, value) for key, values in extra.items() for value in values]
        ones = tuple(self._about(_AUTHENTICATION, "userextras", value, subresource=key) for key, value in pairs)
        if not self.name:
            return Checks(ones)
        if why := _wrong_extra(extra):
            raise forbidden(requestor, self._about(_AUTHENTICATION, "userextras", ""), why)
        many = len(extra) >= _MANY or len(pairs) >= _MANY
        return Checks(ones, self._about(_AUTHENTICATION, "userextras", "*", subresource="*") if many else None)

    def _about(self, group: str, resource: str, name: str, *, namespace: str = "", subresource: str = "") -> RequestInfo:
        return RequestInfo(
            method="", path="", verb=self.verb, is_resource=True, group=group, version="v1", namespace=namespace, resource=resource,
            subresource=subresource, name=name,
        )  # fmt: skip


MODES: Final = tuple(Mode(each) for each in ("associated-node", "arbitrary-node", "serviceaccount", "user-info", ""))


def wants(request: Request) -> bool:
    """Return whether the request has impersonation headers."""
    for each in request.headers:  # noqa: SIM110 - a generator for any() costs more than all that is asked here
        if each[:12].lower() == "impersonate-":
            return True
    return False


def wanted_user(headers: Mapping[str, str]) -> User | None:
    """Return the user that the headers describe; None if they describe none. Raises BadRequest for other fields without a name."""
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


def acting(wanted: User, *, constrained: bool) -> User:
    """Return the impersonated user with the groups that Kubernetes adds, such as ``system:authenticated``.

    ``constrained``: by a mode of KEP-5284; then a node gets ``system:nodes``.
    """
    groups = wanted.groups
    account = service_account(wanted.name)
    if not groups and account is not None:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    if constrained and node_name(wanted.name) is not None:
        groups = (_NODES,)
    if wanted.name == _ANONYMOUS:
        groups = groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups and AUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return User(wanted.name, groups, wanted.uid, wanted.extra)


def service_account(name: str) -> tuple[str, str] | None:
    """Return namespace and name in a service account's user name, or None."""
    parts = name.removeprefix("system:serviceaccount:").split(":")
    if not name.startswith("system:serviceaccount:") or len(parts) != 2:
        return None
    return (parts[0], parts[1]) if _LABEL.fullmatch(parts[0]) and _SUBDOMAIN.fullmatch(parts[1]) else None


def node_name(name: str) -> str | None:
    """Return the node in a node's user name, or None."""
    node = name.removeprefix("system:node:")
    return node if name.startswith("system:node:") and _SUBDOMAIN.fullmatch(node) else None


def _wrong_extra(extra: Mapping[str, tuple[str, ...]]) -> str:
    for key, values in extra.items():
        match = _EXTRA_KEY.fullmatch(key)
        if not key:
            return "impersonating the empty string key in extra is not allowed"
        if match is None or not _SUBDOMAIN.fullmatch(match["domain"]):
            return (
                f'impersonating an invalid key in extra is not allowed: extra.key: Invalid value: "{key}": must be a domain-prefixed path'
            )
        if key != key.lower():
            return f'impersonating a non-lowercase key in extra is not allowed: "{key}"'
        if not all(values):
            return "impersonating the empty string value in extra is not allowed"
    return ""
