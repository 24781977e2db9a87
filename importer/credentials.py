"""Credentials for servers, from a mounted Secret."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from importer import signing
from importer.addresses import Address
from importer.failures import ImportFailed

MAX_BYTES: Final = 16 << 10
DOCKER_CONFIG: Final = ".dockerconfigjson"


def value(secret: Path | None, key: str) -> str:
    """Return the Secret's value of a key, without final newlines; empty if absent.

    Raises:
        ImportFailed: it is unreadable, too long or not text without control characters; the message names the key.
    """
    if secret is None:
        return ""
    try:
        with (secret / key).open("rb") as file:
            found = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ImportFailed(f"the key {key} of the Secret cannot be read: {error.strerror}") from None
    text = found.rstrip(b"\r\n")
    lines = text.translate(None, b"\t\r\n") if key == DOCKER_CONFIG else text
    if len(found) > MAX_BYTES or any(each < 0x20 or each == 0x7F for each in lines):
        raise ImportFailed(f"the value of the key {key} of the Secret is too long, or has control characters")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise ImportFailed(f"the value of the key {key} of the Secret is not valid UTF-8 text") from None


def of_http(secret: Path | None, first: Address) -> Callable[[Address], Mapping[str, str]]:
    """Return a function from a request's address to its headers: credentials go to the server of ``first``, never to other servers.

    Raises ImportFailed if the Secret lacks the keys.
    """
    header = _authorization(secret) if secret is not None else ""
    return lambda address: {"Authorization": header} if header and address.origin == first.origin else {}


def of_s3(secret: Path | None, region: str, first: Address, now: Callable[[], datetime]) -> Callable[[Address], Mapping[str, str]]:
    """Return a function from an address to its signed headers; these are empty for other servers than ``first``'s, or without Secret.

    Raises ImportFailed if the Secret lacks the keys.
    """
    if secret is None:
        return lambda _: {}
    keys = signing.Keys(value(secret, "accessKeyId"), value(secret, "secretKey"), value(secret, "sessionToken"))
    if not keys.access or not keys.secret:
        raise ImportFailed("the Secret of secretRef needs both accessKeyId and secretKey")

    def headers(address: Address) -> Mapping[str, str]:
        if address.origin != first.origin:
            return {}
        return signing.headers(keys, region, address.host_header, address.target.partition("?")[0], now())

    return headers


def of_registry(secret: Path | None, host: str) -> str:
    """Return the header Authorization's value for a registry; empty without Secret. Raises ImportFailed if the Secret has none for it."""
    if secret is None:
        return ""
    if user := value(secret, "username"):
        return basic(user, value(secret, "password"))
    try:
        entries = json.loads(value(secret, DOCKER_CONFIG) or "{}")["auths"]
        entry = entries.get(host) or entries.get(f"https://{host}") or entries[f"https://{host}/v1/"]
        if given := entry.get("auth"):
            return "Basic " + base64.b64encode(base64.b64decode(given, validate=True)).decode()
        return basic(str(entry["username"]), str(entry["password"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ImportFailed(f"the Secret of secretRef needs username and password, or {DOCKER_CONFIG} with an entry for {host}") from None


def _authorization(secret: Path) -> str:
    if token := value(secret, "token"):
        return f"Bearer {token}"
    if user := value(secret, "username"):
        return basic(user, value(secret, "password"))
    raise ImportFailed("the Secret of secretRef needs username and password, or token")


def basic(user: str, password: str) -> str:
    """Return the value of the header Authorization for user and password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
