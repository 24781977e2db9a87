"""The pytest plugin that runs a failed cluster or host test once more, alone: ``--once-more``.

CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import dataclasses
import re
import time
import tomllib
import traceback
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol  # the only way to run a test without an immediate report

from tests import given_time
from tests.damage import damage_of

MOST: Final = 2
LAST_RESORT_SECONDS: Final = given_time.LAST_RESORT_SECONDS + 60.0
"""Shortest timeout of a repeatable test: its own waits end earlier."""
LEDGER: Final = Path("tests/flakes.toml")
DIRECTORY: Final = Path("build/flaked")
_NAME: Final = "flakes"
_SETTINGS: Final = pytest.StashKey[Any]()
_FAILURE: Final = pytest.StashKey["Failure"]()


class Hooks:
    @pytest.hookspec(firstresult=True)
    def pytest_run_alone(self, item: pytest.Item) -> AbstractContextManager[object] | None:
        """Return a context manager that keeps other tests of the item's kind from running, or None to forbid a second run."""
        raise NotImplementedError  # only a specification


@dataclass(frozen=True, slots=True)
class Failure:
    why_final: str
    guests: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Flake:
    test: str
    pressure: int
    guest_seconds: float
    """Meanwhile, of guests still running at the failure."""
    file: str

    def __str__(self) -> str:
        return f"{self.test}: CPU pressure {self.pressure} %, guests had {self.guest_seconds:.1f} s; {self.file}"


def failures(flaked: Sequence[Flake], ledger: Collection[str]) -> list[str]:
    names = {_without_parameters(each) for each in ledger}
    known = [f"{each.test} flaked, and {LEDGER} lists it already" for each in flaked if _without_parameters(each.test) in names]
    return known + ([f"{len(flaked)} tests flaked, more than {MOST}"] if len(flaked) > MOST else [])


def _without_parameters(test: str) -> str:
    return test.partition("[")[0]


def listed(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [str(each["test"]) for each in tomllib.loads(path.read_text(encoding="utf-8")).get("flake", ())]


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--once-more", action="store_true", help="run a failed test of the cluster or of the host once more, alone")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--once-more"):
        config.pluginmanager.register(Repeating(), _NAME)
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Telling(config.rootpath / LEDGER), f"telling of {_NAME}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("timeout")
        if _may_run_again(item) and not (mark and mark.args and mark.args[0] >= LAST_RESORT_SECONDS):
            item.add_marker(pytest.mark.timeout(LAST_RESORT_SECONDS), append=False)


def _may_run_again(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in ("cluster", "host")) and item.ihook.pytest_run_alone(item=item) is not None


class Repeating:
    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        item.stash[_SETTINGS] = settings

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None:
            known = item.stash.get(_FAILURE, None)
            guests = known.guests if known else given_time.look(given_time.guests()).guests
            item.stash[_FAILURE] = Failure(_why_final(call.excinfo.value) or (known.why_final if known else ""), guests)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not _may_run_again(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in _reports(item, nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _why_final(error: BaseException) -> str:
    if damage := damage_of(error):
        return f"the test saw {damage}"
    fixture = wider(error)
    return fixture and f"the teardown of {fixture} failed: a second run has a new {fixture}, and says nothing of this one"


def wider(error: BaseException) -> str:
    """Return the fixture wider than a test that failed at its teardown, or an empty string."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is pytest.FixtureDef.finish.__code__ and (fixture := frame.f_locals["self"]).scope != "function":
            return str(fixture.argname)
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next(filter(None, map(wider, members)), "")


def _reports(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    before = given_time.look(given_time.guests())
    first = runtestprotocol(item, log=False, nextitem=nextitem)
    failed = [report for report in first if report.failed]
    if not failed:
        return first
    after = given_time.look()
    failure = item.stash.get(_FAILURE, Failure("", {}))
    if failure.why_final:
        for report in failed:
            report.sections.append(("not run again", failure.why_final))
        return first
    if (ended := _torn_down(item)).failed:
        return [*first, ended]
    flake = Flake(item.nodeid, pressure(before, after), guest_seconds(before.guests, failure.guests), str(_file(item.nodeid)))
    _keep(item.config.rootpath, flake, failed)
    again = _alone(item, nextitem)
    for report in again:
        if report.failed:
            report.sections.append(("failed twice", f"{flake}"))
    if any(report.skipped for report in again):
        for report in failed:
            report.sections.append(("skipped at the second run", f"{flake}"))
        return first
    if not any(report.failed for report in again):
        again[1 if len(again) > 2 else 0].__dict__[_NAME] = dataclasses.asdict(flake)
    return again


def _torn_down(item: pytest.Item) -> pytest.TestReport:
    _set_timer(item)
    end = item.session._setupstate.teardown_exact
    call = pytest.CallInfo.from_call(lambda: end(item.session), when="teardown")  # type: ignore[arg-type]  # it only asks for what it is in
    _cancel_timer(item)
    return pytest.TestReport.from_item_and_call(item, call)


def _alone(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    with item.ihook.pytest_run_alone(item=item):
        _set_timer(item)
        item.stash.setdefault(_FAILURE, Failure("", {}))
        del item.stash[_FAILURE]
        return runtestprotocol(item, log=False, nextitem=nextitem)


def _set_timer(item: pytest.Item) -> None:
    if (settings := item.stash.get(_SETTINGS, None)) is not None:
        _cancel_timer(item)
        item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)


def _cancel_timer(item: pytest.Item) -> None:
    if _SETTINGS in item.stash:
        item.config.hook.pytest_timeout_cancel_timer(item=item)


def pressure(before: given_time.Look, after: given_time.Look) -> int:
    return round(100 * (after.stalled - before.stalled) / max(after.wall - before.wall, 0.001))


def guest_seconds(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


def _file(test: str) -> Path:
    return DIRECTORY / (re.sub(r"[^\w.-]+", "_", test.removeprefix("tests/"))[:150] + ".txt")


def _keep(root: Path, flake: Flake, failed: Iterable[pytest.TestReport]) -> None:
    path = root / flake.file
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [str(flake), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), ""]
    path.write_text("\n".join([*lines, *_texts(failed)]), encoding="utf-8")


def _texts(failed: Iterable[pytest.TestReport]) -> Iterator[str]:
    for report in failed:
        yield f"== {report.when}"
        yield report.longreprtext
        for title, text in report.sections:
            yield f"-- {title}\n{text}"


class Telling:
    def __init__(self, ledger: Path) -> None:
        self._ledger = listed(ledger)
        self._flaked: list[Flake] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if found := getattr(report, _NAME, None):
            self._flaked.append(Flake(**found))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        if hasattr(report, _NAME) and report.passed:
            return "flaked", "K", ("FLAKED", {"yellow": True})
        return None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and failures(self._flaked, self._ledger):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._flaked:
            terminalreporter.section("flaked tests")
            for line in [*(f"FLAKED {each}" for each in self._flaked), *failures(self._flaked, self._ledger)]:
                terminalreporter.line(line)
