"""Users: the clients of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    """``user.Info``: what an authenticator found out; a key for what is remembered of a user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __hash__(self) -> int:
        """Return a hash of everything: each token of a service account has an ``extra`` of its own."""
        return hash((self.name, self.groups, self.uid, frozenset(self.extra.items())))


ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """Return the user as a member of ``system:authenticated``: the aggregator asks for OpenAPI as a user without groups."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
