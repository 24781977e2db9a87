from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apiserver.client.config import Config, ConfigError
from apiserver.client.credentials import CERTIFICATE_SECONDS, TOKEN_SECONDS, Certificates, Token
from certs.issuing import new_authority


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


def an_authority(path: Path) -> None:
    path.write_bytes(new_authority("test", timedelta(days=1), datetime.now(UTC)).certificate)


def test_token_file_is_reread_each_minute_and_kept_if_unreadable(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("one\n")
    token = Token(Config(server="https://x", token_file=str(path)), clock)
    assert token.value() == "one"
    path.write_text("two")
    assert token.value() == "one"
    clock.at = TOKEN_SECONDS
    assert token.value() == "two"
    path.unlink()
    clock.at = 2 * TOKEN_SECONDS
    assert token.value() == "two"


def test_a_token_file_that_was_never_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-token"):
        Token(Config(server="https://x", token_file=str(tmp_path / "no-such-token")), Clock()).value()


def test_new_connections_trust_a_replaced_authority(tmp_path: Path) -> None:
    path, clock = tmp_path / "ca.crt", Clock()
    an_authority(path)
    certificates = Certificates(Config(server="https://x", ca_file=str(path)), clock)
    first = certificates.context()
    path.write_text("-----BEGIN CERT")
    clock.at = CERTIFICATE_SECONDS
    assert certificates.context() is first
    an_authority(path)
    clock.at = 2 * CERTIFICATE_SECONDS
    assert certificates.context() is not first
