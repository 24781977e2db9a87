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
    """``user.Info``: a request's user, also an impersonated one; usable as a key of caches."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __hash__(self) -> int:
        """Include each field: service account tokens differ in ``extra``."""
        return hash((self.name, self.groups, self.uid, frozenset(self.extra.items())))


ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """Return the user, in group ``system:authenticated`` unless in ``system:unauthenticated``. The aggregator's requests lack both."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
