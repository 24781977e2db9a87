import base64
from typing import Any

import pytest
import yaml

from storage.encryption.ciphers import PLAIN
from storage.encryption.configuration import Misconfigured, Rules, parse

KEY = base64.b64encode(bytes(range(32))).decode()
IDENTITY: dict[str, Any] = {"identity": {}}


def keyed(kind: str = "aesgcm", name: str = "one", secret: str = KEY) -> dict[str, Any]:
    return {kind: {"keys": [{"name": name, "secret": secret}]}}


def document(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": list(rules)}


def rule(*resources: str, providers: list[Any] | None = None) -> dict[str, Any]:
    return {"resources": list(resources), "providers": providers or [keyed()]}


def read(*rules: dict[str, Any]) -> Rules:
    return parse(yaml.safe_dump(document(*rules)))


def writes(rules: Rules, group: str, resource: str) -> bytes:
    return rules.chain(group, resource).providers[0].prefix


def test_rule_of_resource_precedes_group_and_wildcard() -> None:
    rules = read(
        rule("virtualmachines.kubevirt.io", providers=[keyed(name="own")]),
        rule("*.kubevirt.io", providers=[keyed(name="group")]),
        rule("*.*", providers=[keyed(name="all")]),
    )
    assert writes(rules, "kubevirt.io", "virtualmachines").endswith(b":own:")
    assert writes(rules, "kubevirt.io", "migrations").endswith(b":group:")
    assert writes(rules, "wardle.example.com", "flunders").endswith(b":all:")
    assert read(rule("*.kubevirt.io")).chain("other.io", "things") is PLAIN
    assert writes(read(rule("*.")), "", "secrets")


def test_keys_and_later_providers_follow_in_order() -> None:
    two = {"secretbox": {"keys": [{"name": "a", "secret": KEY}, {"name": "b", "secret": KEY}]}}
    rules = read(rule("vms.g", providers=[two, keyed("aescbc", "c")]), rule("vms.g", providers=[IDENTITY]))
    prefixes = [each.prefix for each in rules.chain("g", "vms").providers]
    assert prefixes == [b"k8s:enc:secretbox:v1:a:", b"k8s:enc:secretbox:v1:b:", b"k8s:enc:aescbc:v1:c:", b""]


BAD: list[tuple[Any, str]] = [
    ("- [", "not valid YAML"),
    ("a: b: c", "not valid YAML"),
    ([], "mapping"),
    ({**document(rule("a.g")), "kind": "Secret"}, "kind"),
    ({**document(rule("a.g")), "extra": 1}, "unknown field extra"),
    (document(), "resources: must not be empty"),
    (document(rule()), r"resources\[0\].resources: must not be empty"),
    (document({"resources": ["a.g"], "providers": []}), "providers: must not be empty"),
    (document(rule("*")), r"use \*\."),
    (document(rule("Secrets")), "lower case"),
    (document(rule("secrets.*")), "wildcard group"),
    (document(rule("a.g", "a.g")), "twice"),
    (document(rule("*.*", "a.g")), "covers"),
    (document(rule("*.g", "a.g")), "covers"),
    (document(rule("*.g"), rule("a.g")), "masked"),
    (document(rule("*.*"), rule("a.g")), "masked"),
    (document(rule("a.g", providers=[{}])), "exactly one provider"),
    (document(rule("a.g", providers=[{**IDENTITY, **keyed()}])), "exactly one provider"),
    (document(rule("a.g", providers=[{"kms": {"name": "x", "apiVersion": "v3"}}])), "version 1 is not supported"),
    (document(rule("a.g", providers=[{"rot13": {}}])), "unknown field rot13"),
    (document(rule("a.g", providers=[{"aesgcm": {"keys": []}}])), "keys: must not be empty"),
    (document(rule("a.g", providers=[keyed(name="")])), "name"),
    (document(rule("a.g", providers=[keyed(secret="")])), "secret"),
    (document(rule("a.g", providers=[keyed(secret="not base64, secret!")])), "base64"),
    (document(rule("a.g", providers=[keyed(secret=base64.b64encode(b"hushhush").decode())])), "8 bytes"),
    (document(rule("a.g", providers=[keyed("secretbox", secret=base64.b64encode(bytes(16)).decode())])), "must have 32"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_configuration_errors_do_not_show_the_secret(bad: Any, message: str) -> None:
    with pytest.raises(Misconfigured, match=message) as caught:
        parse(bad if isinstance(bad, str) else yaml.safe_dump(bad))
    assert "secret!" not in str(caught.value)
    assert "hush" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_line_that_is_no_yaml_is_not_quoted() -> None:
    with pytest.raises(Misconfigured) as caught:
        parse(f"a: b\nsecret: {KEY}: x\n")
    assert "line 2" in str(caught.value)
    assert KEY not in str(caught.value)
