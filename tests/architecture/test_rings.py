from __future__ import annotations

import ast
import datetime as dt
import re
import tomllib
from pathlib import Path

import pytest

from tests import flakes, rings
from tests.architecture import test_security_page
from tests.mutants import table

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
MODULES = sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("directory", sorted({module.partition("/")[0] for module in MODULES}))
def test_each_directory_with_tests_has_a_ring(directory: str) -> None:
    assert directory in rings.DIRECTORIES


def test_no_test_is_outside_of_a_module_that_has_a_ring() -> None:
    assert [module for module in MODULES if "/" not in module] == []
    assert all(rings.ring_of(module) in rings.RINGS for module in MODULES)


def test_no_entry_of_the_tables_is_stale() -> None:
    named = [*rings.EXCEPTIONS, *(row.module for row in rings.ROWS)]
    assert sorted(named) == sorted(set(named)), "one module is in one table, once"
    assert [module for module in named if module not in MODULES] == []
    assert [each for each in rings.DIRECTORIES if not any(module.startswith(f"{each}/") for module in MODULES)] == []
    assert [module for module, ring in rings.EXCEPTIONS.items() if ring in ("all", rings.DIRECTORIES[module.partition("/")[0]])] == []


@pytest.mark.parametrize("row", rings.ROWS, ids=lambda row: row.module)
def test_a_module_of_the_ring_all_can_be_added_to_a_run(row: rings.Row) -> None:
    assert 0 < row.seconds <= rings.CAP_SECONDS
    assert row.packages
    assert [package for package in row.packages if not (ROOT / package).exists()] == []


@pytest.mark.parametrize(("threat", "tests"), test_security_page.tried(), ids=lambda value: value[:40])
def test_each_threat_is_tried_in_make_test(threat: str, tests: str) -> None:
    modules = [match["file"] for match in test_security_page.NAMED.finditer(tests) if match["file"]]
    assert {rings.ring_of(module) for module in modules} & {"check", "test"}, threat


def test_tests_that_judge_mutants_are_in_make_check() -> None:
    judges = {test.removeprefix("tests/") for module in table.MODULES for test in module.tests}
    assert [test for test in sorted(judges) if rings.ring_of(test) != "check"] == []


@pytest.mark.parametrize("plugin", ["cluster/conftest.py", "host_turns.py"])
def test_cluster_and_host_tests_can_be_rerun_alone(plugin: str) -> None:
    tree = ast.parse((TESTS / plugin).read_text(encoding="utf-8"))
    assert {"pytest_run_alone", "pytest_runtest_protocol"} <= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


HARM = ("release.uninstall(", "losses.without_", "nodes.restart_kubelet(", 'block("kubectl drain")')


def harming() -> dict[str, str]:
    found = {path.name: path.read_text(encoding="utf-8") for path in (TESTS / "cluster").glob("test_*.py")}
    return {name: text for name, text in found.items() if any(word in text for word in HARM)}


def test_cluster_tests_that_harm_skip_a_users_cluster() -> None:
    assert len(harming()) >= len(HARM)
    skipped = re.compile(r"^pytestmark = \[[^\]]*skipif\(\s*not testbed_kubectl\.is_own_cluster\(\)", re.MULTILINE)
    assert [name for name, text in harming().items() if not skipped.search(text)] == []


def recipe(target: str) -> str:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    return text.partition(f"\n{target}:")[2].partition("\n\n")[0]


def test_parts_of_make_check_are_the_whole_ring() -> None:
    found = re.findall(r'"\$\(PY\) -m pytest -q --ring check --part (\d+)/(\d+) tests"', recipe("check-untimed"))
    assert sorted(found) == [(str(number), str(len(found))) for number in range(1, len(found) + 1)] != []


def test_make_test_runs_the_rest_with_retries() -> None:
    runs = [line.split() for line in recipe("test-untimed").splitlines() if " --after-check " in line]
    assert len(runs) == 1
    assert {"--once-more", "--ring", "$(RING)", "tests"} <= set(runs[0])
    assert "check-untimed" in recipe("test-untimed")


def is_of_a_test(entry: dict[str, object]) -> bool:
    file, _, name = str(entry["test"]).partition("::")
    is_there = (ROOT / file).is_file() and f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8")
    return is_there and isinstance(entry.get("date"), dt.date) and bool(entry.get("cause"))


def test_the_ledger_of_flakes_names_tests() -> None:
    entries = tomllib.loads((ROOT / flakes.LEDGER).read_text(encoding="utf-8")).get("flake", [])
    assert [entry for entry in entries if not is_of_a_test(entry)] == []

    own = f"tests/architecture/test_rings.py::{test_the_ledger_of_flakes_names_tests.__name__}"
    right = {"test": own, "date": dt.date(2026, 11, 30), "cause": "…"}
    assert is_of_a_test(right)
    wrong = ({"test": f"{own}s"}, {"test": "tests/none.py::test_a"}, {"date": "2026"}, {"cause": ""})
    assert not any(is_of_a_test(right | each) for each in wrong)


def families(tree: ast.Module) -> list[tuple[object, object]]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.sample"]
    return [(ast.literal_eval(call.args[0]), ast.literal_eval(call.args[1])) for call in calls]


def test_a_family_has_one_name_and_one_size_of_sample() -> None:
    found: dict[object, set[tuple[str, object]]] = {}
    for module in MODULES:
        if "pytest.mark.sample(" in (text := (TESTS / module).read_text(encoding="utf-8")):
            for of, name in families(ast.parse(text)):
                found.setdefault(name, set()).add((module, of))
    assert len(found) >= 8
    assert [name for name, places in found.items() if len(places) > 1] == []
    assert all(isinstance(of, int) and of > 1 for places in found.values() for _, of in places)
