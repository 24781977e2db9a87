from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from controller.manager.loops import EVICTING, FENCING, LOOPS, NON_OPERATIONAL, SOURCES, Loop
from controller.manager.rights import PARTS, Right
from controller.reconcilers import indexes
from tests.fakes import rbac

RECONCILERS: Final = Path(inspect.getfile(indexes)).parent
PACKAGES: Final = {
    "virtualmachines": "virtual_machines",
    "migrations": "migrations",
    "workloadupdates": "upgrades",
    "virtualmachinereplicasets": "replica_sets",
    "fencing": "fencing",
    "nonoperationalnodes": "non_operational",
}
ALL: Final = (*LOOPS, FENCING, NON_OPERATIONAL)
NAMESPACES: Final = {"cluster": "", "installation": "kubevirt", "node leases": "kubevirt-node-lease"}


def granted(rights: Iterable[Right]) -> Iterator[tuple[str, str, str, str, str]]:
    for each in rights:
        for name in each.names or ("",):
            yield from ((each.group, each.resource, name, verb, NAMESPACES[each.scope]) for verb in each.verbs.split())


def of_loop(loop: Loop) -> tuple[Right, ...]:
    return (*loop.rights, *dict.fromkeys(SOURCES[each].right() for each in loop.informers))


def test_the_chart_grants_the_rights_of_the_table_and_no_others() -> None:
    needed = {*granted(right for loop in LOOPS for right in of_loop(loop)), *granted(right for part in PARTS.values() for right in part)}
    assert needed == set(rbac.permissions("virt-controller"))
    assert not set(granted([EVICTING])) & needed


def test_no_loop_names_a_right_twice() -> None:
    for loop in ALL:
        rights = list(granted(of_loop(loop)))
        assert sorted(rights) == sorted(set(rights)), loop.name


def test_every_informer_has_a_source_and_a_reader() -> None:
    fields = [each.name for each in dataclasses.fields(indexes.Informers)]
    assert list(SOURCES) == fields
    assert {each for loop in LOOPS for each in loop.informers} == set(fields)


def fields_of_methods() -> Mapping[str, set[str]]:
    fields = {each.name for each in dataclasses.fields(indexes.Informers)}
    (of_class,) = (each for each in ast.walk(ast.parse(inspect.getsource(indexes.Informers))) if isinstance(each, ast.ClassDef))
    methods = [each for each in of_class.body if isinstance(each, ast.FunctionDef)]
    read = {
        each.name: {node.attr for node in ast.walk(each) if isinstance(node, ast.Attribute) and node.attr in fields} for each in methods
    }
    return {**read, **{field: {field} for field in fields}}


def read_by(package: str) -> set[str]:
    meaning, found = fields_of_methods(), set()
    for path in (RECONCILERS / package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            owner = ast.unparse(node.value).split(".")[-1].strip("_") if isinstance(node, ast.Attribute) else ""
            if isinstance(node, ast.Attribute) and owner == "informers":
                found |= meaning[node.attr]
            if owner == "reports":
                found |= {"nodes", "leases", "guardians"}
    return found


@pytest.mark.parametrize("loop", ALL, ids=lambda loop: loop.name)
def test_a_loop_reads_the_informers_of_its_row(loop: Loop) -> None:
    assert read_by(PACKAGES[loop.name]) == set(loop.informers)


def test_loops_have_names_of_their_own() -> None:
    assert len({loop.name for loop in ALL}) == len(ALL)
    assert {loop.name for loop in ALL} == set(PACKAGES)
