from __future__ import annotations

import pytest

from tests import rings
from tests.rings import CAP_SECONDS, CHANGES_SECONDS, Row, additions, is_in_sample, ring_of

TABLE = (
    Row("host/test_a.py", 60, ("launcher/domain",)),
    Row("host/test_b.py", 60, ("launcher/main", "handler/node.py")),
    Row("cluster/test_drain.py", 40, ("controller",)),
    Row("cluster/test_upgrade.py", 20, ("charts",)),
    Row("host/test_c.py", 150, ("importer",)),
)


def chosen(commit: str, *changed: str) -> list[str]:
    return [each.row.module.rpartition("_")[2].removesuffix(".py") for each in additions(commit, changed, TABLE)]


@pytest.mark.parametrize(
    ("commit", "modules"),
    [
        ("00000000ff", ["a", "b", "upgrade"]),
        ("1", ["b", "drain"]),
        ("2", ["drain", "a"]),
        ("3", ["upgrade", "a", "b"]),
        ("4", ["c"]),
        ("5", ["a", "b", "upgrade"]),
    ],
)
def test_slice_starts_at_the_commit_and_keeps_the_cap(commit: str, modules: list[str]) -> None:
    found = additions(commit, (), TABLE)
    assert chosen(commit) == modules
    assert sum(each.row.seconds for each in found) <= CAP_SECONDS
    assert {each.why for each in found} == {f"the slice of {commit[:8]}"}


def test_every_module_has_its_turn() -> None:
    packages = sorted({package for row in rings.ROWS for package in row.packages})
    for changed in ([], packages):
        found = {each.row.module for number in range(len(rings.ROWS)) for each in additions(f"{number:08x}", changed)}
        assert found == {row.module for row in rings.ROWS}


def test_same_commit_adds_the_same_modules() -> None:
    runs = [tuple(each.row.module for each in additions(f"{number:08x}", ())) for number in (1, 1, 9)]
    assert runs[0] == runs[1] != runs[2]


def test_changed_packages_come_first_and_leave_room() -> None:
    assert chosen("0", "controller/evictions/outcomes.py") == ["drain", "a"]
    assert chosen("0", "handler/node.py")[0] == "b"
    assert chosen("0", "importer/x.py") == chosen("0", "tests/host/test_c.py") == ["c"]
    assert chosen("2", "launcher/domain/x.py", "launcher/main/x.py", "importer/x.py") == ["c"]
    found = additions("0", ["launcher/domain/cpu.py", "launcher/main/decisions/life.py"], TABLE)
    assert [each.why for each in found][:1] == ["launcher/domain changed"]
    assert sum(each.row.seconds for each in found if "changed" in each.why) <= CHANGES_SECONDS
    assert any("slice" in each.why for each in found)


@pytest.mark.parametrize("path", ["launcher/domains/x.py", "handler/node.pyc", "docs/launcher/domain/x.md", "importerx"])
def test_a_path_that_only_begins_alike_changes_no_package(path: str) -> None:
    assert chosen("3", path) == chosen("3")


def test_at_most_one_module_has_the_cluster_to_itself() -> None:
    for commit in "01234":
        assert {"drain", "upgrade"} - set(chosen(commit, "controller/x.py", "charts/x.yaml"))


def test_without_a_commit_nothing_is_added() -> None:
    assert additions("", ["launcher/domain/cpu.py"], TABLE) == []
    assert additions("1", ["launcher/domain/cpu.py"], ()) == []


def test_commits_one_after_the_other_run_each_case_once() -> None:
    seen = [index for number in range(8) for index in range(33) if is_in_sample(index, 8, f"{number:x}", "values")]
    assert sorted(seen) == list(range(33))
    assert [index for index in range(20) if is_in_sample(index, 8, "00000003" + "f" * 32, "values")] == [3, 11, 19]
    assert is_in_sample(0, 8, "", "values")


def test_single_cases_of_families_come_in_different_runs() -> None:
    single = [[is_in_sample(0, 2, f"{number:x}", family) for number in range(6)] for family in ("rules", "drains", "devices", "policies")]
    assert all(sum(runs) == 3 for runs in single)
    assert any(runs != single[0] for runs in single)


def test_ring_follows_the_row_exception_or_directory() -> None:
    assert ring_of(rings.ROWS[0].module) == "all"
    assert ring_of("contracts/test_cel_as_go.py") == "test"
    assert ring_of("unit/handler/test_node.py") == "check"
    assert ring_of("component/client/test_rest.py") == "check"
    assert ring_of("component/test_uninstall.py") == "test"
    with pytest.raises(KeyError):
        ring_of("elsewhere/test_node.py")


def test_a_ring_runs_those_before_it() -> None:
    assert [other for other in rings.RINGS if rings.includes("test", other)] == ["check", "test"]
