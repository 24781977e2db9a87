"""Who asks: :mod:`apiserver.apis.meta.users`."""

from apiserver.apis.meta.users import ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, authenticated

__all__ = ["ANONYMOUS", "AUTHENTICATED", "MASTERS", "UNAUTHENTICATED", "User", "authenticated"]
