from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import rings
from tests.selection import ROOT, SEED, Selection, changed_within_a_day, decided

pytest_plugins = ["pytester"]

SUITE = """
    import pytest

    @pytest.mark.sample(3, "values")
    @pytest.mark.parametrize("number", range(7))
    def test_number(number):
        print("number", number)

    @pytest.mark.host
    def test_on_the_host():
        pass

    def test_short(*, is_short):
        print("short", is_short)
"""
INI = """
    [pytest]
    addopts = -p tests.selection -p no:schemathesis -p no:anyio
    asyncio_default_fixture_loop_scope = function
    markers =
        host: …
        slow: …
        cluster: …
        sample: …
"""


def git(directory: Path, *arguments: str, date: str = "2026-11-28T12:00:00+00:00") -> None:
    environment = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "-C", directory, "-c", "user.name=n", "-c", "user.email=e", *arguments], check=True, env=environment)


def commit(directory: Path, name: str, date: str) -> None:
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_text(date)
    git(directory, "add", "-A")
    git(directory, "commit", "-qm", name, date=date)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "origin"
    made.mkdir()
    git(made, "init", "-q")
    for name, date in (
        ("first/a.py", "2026-11-20"),
        ("old/b.py", "2026-11-26"),
        ("new/c.py", "2026-11-27T18"),
        ("new/d.py", "2026-11-28T12"),
    ):
        commit(made, name, f"{date:T<11}"[:10] + (date[10:] or "T00") + ":00:00+00:00")
    return made


def test_changes_are_those_of_the_day_before_the_last_commit(repository: Path) -> None:
    assert changed_within_a_day(repository) == ["new/c.py", "new/d.py"]

    (repository / "first/a.py").write_text("edited")
    (repository / "old/e.py").write_text("not added yet")
    assert changed_within_a_day(repository) == ["first/a.py", "new/c.py", "new/d.py", "old/e.py"]


def test_a_seed_that_is_no_commit_is_refused(repository: Path) -> None:
    with pytest.raises(pytest.UsageError, match="TESTS_SEED=main: give a commit's hexadecimal digits"):
        decided("test", {SEED: "main"}, repository)


def test_a_moved_file_changes_both_places(repository: Path) -> None:
    git(repository, "config", "diff.renames", "true")
    git(repository, "mv", "old/b.py", "new/b.py")
    assert changed_within_a_day(repository) == ["new/b.py", "new/c.py", "new/d.py", "old/b.py"]
    git(repository, "commit", "-qm", "move", date="2026-11-28T13:00:00+00:00")
    assert changed_within_a_day(repository) == ["new/b.py", "new/c.py", "new/d.py", "old/b.py"]


def test_the_run_names_changed_modules_beyond_the_cap(repository: Path) -> None:
    for name in ("handler", "launcher"):
        (repository / name).mkdir()
        for package in ("network", "storage", "domain", "main", "hypervisor"):
            (repository / name / package).mkdir()
            (repository / name / package / "a.py").touch()
    found = decided("test", {}, repository)
    assert set(found.over) == rings.reasons(changed_within_a_day(repository)).keys() - found.added.keys()
    assert found.over
    assert set(found.over) <= set(re.findall(r"[a-z0-9_/]+\.py", list(found.lines())[-1]))


def test_shallow_clone_has_no_changes_and_no_git_no_commit(repository: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", str(shallow))
    assert changed_within_a_day(shallow) == []
    assert decided("test", {}, shallow).commit == decided("test", {}, repository).commit != ""
    assert decided("test", {}, shallow).added

    nothing = decided("test", {}, tmp_path)
    assert (nothing.commit, nothing.added, changed_within_a_day(tmp_path)) == ("", {}, [])
    assert "none" in next(nothing.lines())


def test_a_seed_takes_the_commits_place_and_is_told(repository: Path) -> None:
    found = decided("test", {SEED: "0000000012345678"}, repository)
    assert found.commit == "0000000012345678"
    lines = list(found.lines())
    assert "TESTS_SEED=000000001234 " in lines[0]
    assert len(lines) == 1 + len(found.added) > 1
    assert decided("all", {SEED: "1"}, repository).added == {}


def test_a_module_is_imported_if_its_ring_is_run_or_it_was_added() -> None:
    selection = Selection("test", "0", {"cluster/test_cloud.py": "the slice"})
    seen = {
        name: selection.has_module(ROOT / "tests" / name)
        for name in (
            "unit/test_ports.py",
            "cluster/test_owners.py",
            "cluster/test_cloud.py",
            "cluster/test_passt.py",
            "cluster/conftest.py",
        )
    }
    assert list(seen.values()) == [True, True, True, False, True]
    assert not Selection("check", "0", {}).has_module(ROOT / "tests/cluster/test_owners.py")
    assert Selection("all", "0", {}).has_module(ROOT / "tests/cluster/test_passt.py")


def test_a_part_imports_its_own_modules_alone() -> None:
    whole, first, second = (Selection("check", "0", {}, part=part) for part in ("", "1/2", "2/2"))
    files = list((ROOT / "tests").rglob("test_*.py"))
    modules, firsts, seconds = ({path for path in files if each.has_module(path)} for each in (whole, first, second))
    assert firsts | seconds == modules
    assert not firsts & seconds
    assert first.has_module(ROOT / "tests/conftest.py")


@pytest.mark.parametrize(
    ("flags", "passed", "lines"),
    [
        ((), 9, []),
        (("--ring=check",), 4, ["ring: check", "sample: values: 3 of 7 cases", "short False"]),
        (("--ring=test",), 5, ["ring: test; seed: 00000003*", "sample: values: 3 of 7 cases", "number 6", "short True"]),
        (("--ring=all",), 9, ["ring: all", "sample: values: 7 of 7 cases", "short False"]),
    ],
    ids=["no ring", "check", "test", "all"],
)
def test_run_selects_its_rings_tests_and_reports_the_rest(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], passed: int, lines: list[str]
) -> None:
    monkeypatch.setenv(SEED, "00000003")
    pytester.makeini(INI)
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_inprocess("-q", "-rP", *flags)
    result.assert_outcomes(passed=passed, deselected=9 - passed)
    for line in lines:
        result.stdout.fnmatch_lines([line])


@pytest.mark.slow
def test_processes_of_xdist_run_what_was_decided_once(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED, "00000004")
    pytester.makeini(INI)
    pytester.makeconftest(
        f"import os\n\ndef pytest_sessionstart():\n    os.environ[{SEED!r}] = '0'  # a process that decides again takes others\n"
    )
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("-n2", "--ring=test", "-rP")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["sample: values: 2 of 7 cases"])
    result.stdout.fnmatch_lines_random(["number 1", "number 4"])


def test_modules_without_more_tests_are_not_imported_again() -> None:
    short, slow, sampled = (
        ROOT / "tests" / name
        for name in ("unit/testbed/test_timed.py", "contracts/test_hypervisor.py", "unit/apiserver/apis/virt/test_structure.py")
    )
    assert [Selection("test", "0", {}, after_check=True).has_module(each) for each in (short, slow, sampled)] == [False, True, False]
    assert [Selection("all", "0", {}, after_check=True).has_module(each) for each in (short, slow, sampled)] == [False, True, True]


@pytest.mark.parametrize("mark", ["slow", "host", "cluster"])
def test_marked_tests_run_after_the_ring_check(request: pytest.FixtureRequest, mark: str) -> None:
    selection = Selection("test", "0", {}, after_check=True)
    assert not selection.has(request.node, {})
    request.node.add_marker(mark)
    assert selection.has(request.node, {})


@pytest.mark.slow
@pytest.mark.parametrize(("options", "collected"), [((), {"unit", "component"}), (("--after-check",), {"component"})])
def test_a_run_after_that_of_check_leaves_out_what_that_one_ran(options: tuple[str, ...], collected: set[str]) -> None:
    paths = ("tests/unit/testbed/test_timed.py", "tests/component/storage/test_kms.py")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--ring", "test", *options, *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split("/")[1] for line in done.stdout.splitlines() if line.startswith("tests/")} == collected
