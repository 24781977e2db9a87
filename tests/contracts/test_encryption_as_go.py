import base64
import pathlib
import random
from typing import Any

import pytest
import yaml

from storage.encryption.ciphers import Undecryptable
from storage.encryption.configuration import Misconfigured, Rules, parse
from tests.encryption.program import EncryptionError, Kubernetes
from tests.unit.storage.encryption.test_configuration import BAD

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the first build takes minutes

KEY_IN_ETCD = "/registry/kubevirt.io/virtualmachines/default/a"
CHOICE = random.Random(4)


def keys(*names: str, size: int = 32) -> dict[str, Any]:
    return {"keys": [{"name": name, "secret": base64.b64encode(random.Random(name).randbytes(size)).decode()} for name in names]}


def written(path: pathlib.Path, *rules: tuple[list[str], list[Any]]) -> Rules:
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": resources, "providers": providers} for resources, providers in rules],
    }
    path.write_text(yaml.safe_dump(document))
    return parse(path.read_text())


@pytest.mark.parametrize(
    "provider",
    [
        {"aesgcm": keys("a")},
        {"aesgcm": keys("a", size=16)},
        {"aesgcm": keys("a", size=24)},
        {"aescbc": keys("a")},
        {"secretbox": keys("a")},
        {"identity": {}},
    ],
    ids=lambda each: next(iter(each)),
)
def test_each_side_reads_what_the_other_wrote(tmp_path: pathlib.Path, provider: dict[str, Any]) -> None:
    rules = written(tmp_path / "config.yaml", (["*.kubevirt.io"], [provider]))
    chain = rules.chain("kubevirt.io", "virtualmachines")
    with Kubernetes(tmp_path / "config.yaml") as kubernetes:
        for size in (0, 1, 15, 16, 17, 2500, 100_000):
            value = b"{" + CHOICE.randbytes(size)
            theirs = kubernetes.encrypt("virtualmachines.kubevirt.io", KEY_IN_ETCD, value)
            assert chain.unseal(theirs, KEY_IN_ETCD.encode()) == (value, False)
            ours = chain.seal(value, KEY_IN_ETCD.encode())
            assert len(ours) == len(theirs)
            assert kubernetes.decrypt("virtualmachines.kubevirt.io", KEY_IN_ETCD, ours) == (value, False)


def test_both_call_the_same_values_stale_and_the_same_unreadable(tmp_path: pathlib.Path) -> None:
    old = written(tmp_path / "old.yaml", (["*.*"], [{"aescbc": keys("1")}]))
    rules = written(tmp_path / "new.yaml", (["*.*"], [{"aesgcm": keys("2", "3")}, {"aescbc": keys("1")}, {"identity": {}}]))
    other = written(tmp_path / "other.yaml", (["*.*"], [{"secretbox": keys("4")}, {"aesgcm": keys("3")}]))
    chain, about = rules.chain("g", "r"), KEY_IN_ETCD.encode()
    stored = [each.chain("g", "r").seal(b"value", about) for each in (old, rules, other)]
    stored += [b'{"in": "the clear"}', b"k8s:enc:", b"k8s:enc:aesgcm:v1:2:", b"k8s:enc:aescbc:v1:1:" + bytes(31), stored[1][:-1], b""]
    stored += [bytes(CHOICE.choices(stored[1], k=60)), stored[1].replace(b":2:", b":3:")]
    with Kubernetes(tmp_path / "new.yaml") as kubernetes:
        for each in stored:
            try:
                theirs: Any = kubernetes.decrypt("r.g", KEY_IN_ETCD, each)
            except EncryptionError:
                with pytest.raises(Undecryptable):
                    chain.unseal(each, about)
            else:
                assert chain.unseal(each, about) == theirs


def test_both_choose_the_same_rule(tmp_path: pathlib.Path) -> None:
    rules = written(
        tmp_path / "config.yaml",
        (["a.one", "b.one"], [{"aesgcm": keys("named")}]),
        (["*.one", "*."], [{"aesgcm": keys("group")}]),
        (["a.two"], [{"identity": {}}]),
        (["*.*"], [{"aesgcm": keys("all")}]),
    )
    with Kubernetes(tmp_path / "config.yaml") as kubernetes:
        for resource, group in (("a", "one"), ("c", "one"), ("a", "two"), ("b", "two"), ("secrets", ""), ("a", "three")):
            theirs = kubernetes.encrypt(f"{resource}.{group}" if group else resource, "k", b"value")
            prefix = rules.chain(group, resource).providers[0].prefix
            assert theirs.startswith(prefix)
            assert prefix or theirs == b"value"


STRICTER = ("unknown field", "mapping")


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_configurations_go_refuses_are_refused(tmp_path: pathlib.Path, bad: Any, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(bad if isinstance(bad, str) else yaml.safe_dump(bad))
    with pytest.raises(Misconfigured):
        parse(path.read_bytes())
    if not message.startswith(STRICTER):
        with pytest.raises(EncryptionError), Kubernetes(path):
            pass
