"""Parse the file of ``--encryption-provider-config``: ``apiserver.config.k8s.io/v1``, kind EncryptionConfiguration."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from storage.encryption.ciphers import PLAIN, AesCbc, AesGcm, Chain, Identity, Provider, Secretbox
from storage.encryption.kms.envelope import Envelope
from storage.encryption.kms.service import Service

API_VERSIONS: Final = ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1")
_ANY: Final = "*"
_AES_KEYS: Final = (16, 24, 32)
_KEYED: Final[Mapping[str, tuple[Callable[[str, bytes], Provider], tuple[int, ...]]]] = {
    "aesgcm": (AesGcm, _AES_KEYS),
    "aescbc": (AesCbc, _AES_KEYS),
    "secretbox": (Secretbox, (32,)),
}


class Misconfigured(ValueError):
    """The file is invalid; the message names the field and contains no secret."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Chains of providers by resource."""

    chains: Mapping[tuple[str, str], Chain]
    """By (group, resource); ``*`` matches any."""
    services: Sequence[Envelope] = ()
    """The caller runs their ``run``."""

    def chain(self, group: str, resource: str) -> Chain:
        """Return a resource's chain: its own, else its group's, else that of ``*.*``, else ``PLAIN``, which does not encrypt."""
        for rule in ((group, resource), (group, _ANY), (_ANY, _ANY)):
            if rule in self.chains:
                return self.chains[rule]
        return PLAIN


def parse(text: str | bytes) -> Rules:
    """Parse an EncryptionConfiguration. Raises Misconfigured.

    Unknown fields are refused, unlike in Go: a misspelt one would leave data unencrypted.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        # The parser's text quotes the line, which may have a key.
        mark = getattr(error, "problem_mark", None)
        raise Misconfigured(f"it is not valid YAML{f' in line {mark.line + 1}' if mark else ''}") from None
    top = _mapping(document, "", {"apiVersion", "kind", "resources"})
    if top.get("apiVersion") not in API_VERSIONS or top.get("kind") != "EncryptionConfiguration":
        raise Misconfigured(f"must have apiVersion {API_VERSIONS[0]}, kind EncryptionConfiguration")
    chains: dict[tuple[str, str], Chain] = {}
    services: list[Envelope] = []
    for index, each in enumerate(_sequence(top.get("resources"), "resources")):
        path = f"resources[{index}]"
        entry = _mapping(each, path, {"resources", "providers"})
        providers = _providers(entry.get("providers"), f"{path}.providers", services)
        patterns = [
            _pattern(pattern, f"{path}.resources[{n}]") for n, pattern in enumerate(_sequence(entry.get("resources"), f"{path}.resources"))
        ]
        _check_overlap(patterns, f"{path}.resources")
        for group, resource in patterns:
            for earlier in ((group, _ANY), (_ANY, _ANY)):
                if earlier in chains:
                    raise Misconfigured(f"{path}.resources: {resource}.{group} is masked by the earlier rule {earlier[1]}.{earlier[0]}")
            before = chains.get((group, resource))
            together = (*(before.providers if before else ()), *providers)
            chains[group, resource] = Chain(together, tuple(each for each in together if isinstance(each, Envelope)))
    return Rules(chains, tuple(services))


def _pattern(pattern: object, path: str) -> tuple[str, str]:
    if not isinstance(pattern, str) or not pattern or pattern != pattern.lower():
        raise Misconfigured(f"{path}: must be a resource in lower case, like virtualmachines.kubevirt.io, *.kubevirt.io or *.*")
    resource, _, group = pattern.partition(".")
    if pattern == _ANY:
        raise Misconfigured(f"{path}: use *. for every resource of the core group, or *.* for all")
    if group == _ANY and resource != _ANY:
        raise Misconfigured(f"{path}: a wildcard group with a resource is not supported")
    return group, resource


def _check_overlap(patterns: Sequence[tuple[str, str]], path: str) -> None:
    if len(set(patterns)) < len(patterns):
        raise Misconfigured(f"{path}: the same resource occurs twice")
    if len(patterns) > 1 and (_ANY, _ANY) in patterns:
        raise Misconfigured(f"{path}: *.* covers the others")
    for group, resource in patterns:
        if resource != _ANY and (group, _ANY) in patterns:
            raise Misconfigured(f"{path}: *.{group} covers {resource}.{group}")


def _providers(value: object, path: str, services: list[Envelope]) -> list[Provider]:
    found: list[Provider] = []
    for index, each in enumerate(_sequence(value, path)):
        here = f"{path}[{index}]"
        entry = _mapping(each, here, {"identity", "kms", *_KEYED})
        if len(entry) != 1:
            raise Misconfigured(f"{here}: each element must have exactly one provider")
        ((kind, settings),) = entry.items()
        if kind == "identity":
            found.append(Identity())
        elif kind == "kms":
            envelope = _envelope(settings, f"{here}.kms")
            if any(envelope.name == each.name for each in services):
                raise Misconfigured(f"{here}.kms.name: another service already has the name {envelope.name}")
            services.append(envelope)
            found.append(envelope)
        else:
            found += _keys(kind, settings, f"{here}.{kind}")
    return found


def _keys(kind: str, settings: object, path: str) -> list[Provider]:
    make, sizes = _KEYED[kind]
    keys = _sequence(_mapping(settings, path, {"keys"}).get("keys"), f"{path}.keys")
    found = []
    for index, each in enumerate(keys):
        here = f"{path}.keys[{index}]"
        key = _mapping(each, here, {"name", "secret"})
        name, secret = key.get("name"), key.get("secret")
        if not isinstance(name, str) or not name:
            raise Misconfigured(f"{here}.name: a name is required")
        if not isinstance(secret, str) or not secret:
            raise Misconfigured(f"{here}.secret: the key in base64 is required")
        try:
            raw = base64.b64decode(secret, validate=True)
        except (binascii.Error, ValueError):
            raise Misconfigured(f"{here}.secret: it is not valid base64") from None
        if len(raw) not in sizes:
            raise Misconfigured(f"{here}.secret: it has {len(raw)} bytes, must have {' or '.join(map(str, sizes))}")
        found.append(make(name, raw))
    return found


def _envelope(settings: object, path: str) -> Envelope:
    given = _mapping(settings, path, {"name", "endpoint", "timeout", "apiVersion", "cachesize"})
    name, endpoint, timeout = given.get("name"), given.get("endpoint"), given.get("timeout", "3s")
    if given.get("apiVersion") != "v2" or "cachesize" in given:
        raise Misconfigured(f"{path}: must have apiVersion: v2, without cachesize; version 1 is not supported")
    if not isinstance(name, str) or not name or ":" in name:
        raise Misconfigured(f"{path}.name: must be a name without a colon")
    if not isinstance(endpoint, str) or not endpoint.startswith("unix:///") or endpoint == "unix:///":
        raise Misconfigured(f"{path}.endpoint: must be unix:///PATH")
    socket = endpoint.removeprefix("unix://")
    if socket.startswith("/@"):
        socket = "\0" + socket[2:]
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)", timeout) if isinstance(timeout, str) else None
    seconds = float(match[1]) * {"ms": 0.001, "s": 1, "m": 60}[match[2]] if match else 0
    if seconds <= 0:
        raise Misconfigured(f"{path}.timeout: must be a positive duration, like 3s")
    return Envelope(name, Service(socket, seconds))


def _mapping(value: object, path: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Misconfigured(f"{path or 'the file'}: must be a mapping")
    unknown = sorted(str(key)[:64] for key in value.keys() - known)
    if unknown:
        raise Misconfigured(f"{path or 'the file'}: unknown field {unknown[0]}; known fields: {', '.join(sorted(known))}")
    return value


def _sequence(value: object, path: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise Misconfigured(f"{path}: must not be empty")
    return value
