from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from mypy import api

ROOT: Final = Path(__file__).parents[2]
MODULE: Final = """
from __future__ import annotations
from typing import TYPE_CHECKING, Any
from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.kinds import dig_migration, dig_policy, dig_replica_set, dig_vm
if TYPE_CHECKING:
    from apiserver.apis.virt.typed import Migration, VirtualMachine

def read(vm: VirtualMachine | None, migration: Migration, pod: dict[str, Any]) -> None:
    dig(vm, "status", "podUid")
    dig(vm, "metadata", "label")
    dig(migration, "status", "phase", "word")
    migration.get("state")
    for attempt in dig(vm, "status", "attempts") or ():
        attempt.get("nodename")
    number: int = dig(migration, "status", "attempt")
    phase: int = (migration.get("status") or {}).get("phase") or 0
    dig(vm, "status", "podUID")
    dig(vm, "spec", "nodeSelector", "zone")
    dig(vm, "spec", "affinity", "nodeAffinity", "any")
    dig(pod, "status", "podUid")
    dig_vm(pod, "status", "attempt", "word")
    dig_migration(pod, "spec", "selector", "names")
    dig_vm(pod, "status", "podUID")
    dig_policy(pod, "spec", "bandwith")
    dig_replica_set(pod, "spec", "template", "specs")
"""
FOUND: Final = {
    '9: error: "VirtualMachineStatus" has no field "podUid"',
    '10: error: "ObjectMeta" has no field "label"',
    '11: error: "str" has no field "word"',
    '12: error: "Migration" has no field "state"',
    '14: error: "Attempt" has no field "nodename"',
    "15: error: Incompatible types in assignment",
    "16: error: Incompatible types in assignment",
    '21: error: "int" has no field "word"',
    '22: error: "MigrationSelector" has no field "names"',
    '24: error: "MigrationPolicySpec" has no field "bandwith"',
    '25: error: "VirtualMachineTemplate" has no field "specs"',
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    file = tmp_path_factory.mktemp("typed") / "reader.py"
    file.write_text(MODULE.lstrip())
    output, problems, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache"), str(file)])
    assert not problems
    return {found[1] for line in output.splitlines() if (found := re.search(r"reader\.py:(\d+: error: [^(]+?)(?:  \[| \()", line))}


def test_unknown_model_fields_are_type_errors_and_dict_keys_not(said: set[str]) -> None:
    assert said == FOUND
