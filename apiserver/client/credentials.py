"""Bearer tokens and certificates that are rotated in their files."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from apiserver.client.config import Config, ConfigError

TOKEN_SECONDS: Final = 60.0
"""Between reads of a token file, as client-go."""
CERTIFICATE_SECONDS: Final = 10.0
"""Between checks of certificate files."""


class Token:
    """The bearer token of a configuration; empty without one."""

    def __init__(self, config: Config, now: Callable[[], float]) -> None:
        self._config = config
        self._now = now
        self._value = config.token or ""
        self._read_at = float("-inf")

    def value(self) -> str:
        """Return the token; while its file is unreadable, the last one. Raises ConfigError without a last one."""
        if self._config.token_file and self._now() - self._read_at >= TOKEN_SECONDS:
            try:
                self._value = Path(self._config.token_file).read_text().strip()
            except OSError as error:
                if not self._value:
                    raise ConfigError(f"read token {self._config.token_file}: {error.strerror}") from error
            self._read_at = self._now()
        return self._value

    def refused(self) -> bool:
        """Read the token's file again, after a 401; return whether it has another token."""
        before, self._read_at = self._value, float("-inf")
        return bool(self._config.token_file) and self.value() != before


class Certificates:
    """The TLS context of a configuration, renewed when its files change."""

    def __init__(self, config: Config, now: Callable[[], float]) -> None:
        self._config = config
        self._now = now
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[tuple[int, int], ...] = ()
        self._looked_at = float("-inf")

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection; the last one while files are incomplete. Raises ConfigError without a last one."""
        if self._context is None:
            self._stamps = self._stat()
            self._context = self._config.ssl_context()
            self._looked_at = self._now()
        elif self._now() - self._looked_at >= CERTIFICATE_SECONDS:
            self._looked_at = self._now()
            if (stamps := self._stat()) != self._stamps:
                try:
                    self._context = self._config.ssl_context()
                except ConfigError:
                    return self._context  # key and certificate are written separately: retry later
                self._stamps = stamps
        return self._context

    def _stat(self) -> tuple[tuple[int, int], ...]:
        stamps = []
        for each in self._config.watched_files():
            try:
                found = Path(each).stat()
                stamps.append((found.st_mtime_ns, found.st_ino))
            except OSError:
                stamps.append((0, 0))
        return tuple(stamps)
