from __future__ import annotations

import json
from pathlib import Path

from apiserver.registry.generic.strategy import Strategy
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from benchmarks.api import payloads
from tests.reference_server import flunders


def accepted(kind: payloads.Kind, strategy: Strategy) -> bool:
    text = json.dumps(kind.template).replace("@NAME@", "o-00001").replace("@SHARD@", "01").replace("@SEQUENCE@", f"q{7:019}")
    obj = json.loads(text)
    reading = strategy.read(obj)
    strategy.default(obj)
    return not (reading.unknown or reading.errors or strategy.validate(obj))


def test_flunders_are_as_the_api_wants_them() -> None:
    assert accepted(payloads.flunder(flunders.GROUP), flunders.FlunderStrategy())


def test_machines_are_as_the_api_wants_them() -> None:
    assert accepted(payloads.machine(), VirtualMachineStrategy())


def test_templates_and_patches_contain_the_sequence_placeholder(tmp_path: Path) -> None:
    for kind in (payloads.flunder("g"), payloads.machine()):
        for file in kind.write(tmp_path):
            assert f'"{payloads.SEQUENCE}":"@SEQUENCE@"' in file.read_text()
