from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from benchmarks.api import payloads, varied
from benchmarks.api.loading import load
from benchmarks.api.operations import MANY, VARIED, Operation
from tests.reference_server import servers
from tests.reference_server.certificates import FRONT_PROXY, USER, USERS, Certificates
from tests.reference_server.environment import GROUP, Environment
from tests.reference_server.programs import Program
from tests.reference_server.servers import Server, Variant

SEED = "varied_get-0"
OF_THE_REFERENCE = {"--authentication-kubeconfig", "--authorization-kubeconfig"}
"""Flags of the reference server alone; ours uses ``--kubeconfig`` for both."""
OF_OURS = {"--shutdown-delay-duration", "--log-level"}
"""Ours logs warnings only, like Go's default."""
OF_EACH = {"--etcd-prefix"}


@pytest.fixture
def here(tmp_path: Path) -> Environment:
    nobody = Program("nobody", cast("subprocess.Popen[bytes]", None), tmp_path / "log")
    return Environment(tmp_path, Certificates(tmp_path), nobody, "http://127.0.0.1:1", nobody, 2, frozenset())


def flags(here: Environment, variant: Variant) -> dict[str, str]:
    given = Server(variant, here, port=3, setting=servers.VARIED).flags()
    found = {name: value for name, _, value in (each.partition("=") for each in given)}
    assert len(found) == len(given), "a flag is given twice"
    return found


@pytest.mark.parametrize("variant", [servers.REFERENCE_DEFAULT, servers.REFERENCE_TUNED], ids=lambda variant: variant.name)
def test_both_servers_have_the_same_flags(here: Environment, variant: Variant) -> None:
    reference, ours = flags(here, variant), flags(here, servers.OURS_FLUNDERS)
    assert reference.keys() - ours.keys() == OF_THE_REFERENCE
    assert ours.keys() - reference.keys() == OF_OURS
    assert {name for name in reference.keys() & ours.keys() if reference[name] != ours[name]} == OF_EACH
    assert {reference[name] for name in OF_THE_REFERENCE} == {ours["--kubeconfig"]}


@pytest.mark.parametrize("operation", VARIED, ids=lambda operation: operation.key)
def test_both_are_asked_for_the_same_by_the_front_proxy(here: Environment, operation: Operation) -> None:
    assert servers.REFERENCE_DEFAULT.group == servers.OURS_FLUNDERS.group == GROUP
    asked = load(here, payloads.flunder(GROUP), operation, USER)
    assert f"-cert={here.certificates.certificate(FRONT_PROXY)}" in asked
    assert f"-objects={MANY}" in asked
    assert asked == load(here, payloads.flunder(GROUP), operation, USER), "nothing of it is drawn or counted up"


def test_seed_determines_the_requests() -> None:
    first = list(varied.requests(SEED))
    assert first == list(varied.requests(SEED))
    assert first != list(varied.requests("varied_get-1"))


def test_a_file_of_requests_is_written_once(tmp_path: Path) -> None:
    path = varied.write(tmp_path / "new", SEED, ["1\tX-Remote-User: a", "2\tX-Remote-User: b"])
    assert varied.write(tmp_path / "new", SEED, ["others"]) == path
    assert path.read_text() == "1\tX-Remote-User: a\n2\tX-Remote-User: b\n"


def test_all_users_ask_for_all_objects_each_for_its_own() -> None:
    objects: dict[str, set[int]] = {}
    newcomers, traces = Counter[str](), Counter[str]()
    for line in varied.requests(SEED):
        number, user, *others = line.split("\t")
        assert others[:2] == [f"X-Remote-Group: {USERS}", "X-Remote-Group: system:authenticated"]
        traces.update(others[2:])
        if user.startswith(f"X-Remote-User: {SEED}-"):
            newcomers[user] += 1
        else:
            objects.setdefault(user, set()).add(int(number))
    assert len(objects) == varied.COUNT
    assert all(max(each) - min(each) < MANY // varied.COUNT for each in objects.values())
    assert sum(map(len, objects.values())) > 0.99 * MANY
    for found, share in ((newcomers, varied.NEWCOMERS), (traces, varied.TRACED)):
        assert set(found.values()) == {1}, "each is seen once"
        assert len(found) == pytest.approx(varied.LENGTH * share, rel=0.05)


def test_each_user_is_introduced_with_each_of_its_objects_once() -> None:
    pairs = [line.split("\t")[:2] for line in varied.introductions()]
    assert sorted(int(number) for number, _ in pairs) == list(range(MANY))
    assert all(user == f"X-Remote-User: {varied.owner(int(number))}" for number, user in pairs)
    assert [int(number) for number, _ in pairs] != sorted(int(number) for number, _ in pairs)
