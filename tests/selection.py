"""The pytest plugin that runs a ring of ``tests/rings.py``: ``--ring check``, ``--ring test`` or ``--ring all``.

Without the option it leaves nothing out. Modules outside the ring are not imported. Tests marked ``slow``, ``host`` or ``cluster`` are at
least in the ring ``test``. Of a family of cases, marked ``sample``, ``test`` runs a part chosen by the commit::

    @pytest.mark.sample(8, "hostile objects")  # one of eight cases
    @pytest.mark.parametrize("piece", PIECES)
    def test_…

``--after-check`` leaves out tests that the ring ``check`` has run on the same sources. ``--part 1/2`` runs the first of two parts
(``tests/parts.py``).

``TESTS_SEED`` replaces the repository's commit in the choice. The first line of a run prints it.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import string
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from tests import parts, rings
from tests.rings import Ring

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

ROOT: Final = Path(__file__).parents[1]
SEED: Final = "TESTS_SEED"
_MARKED: Final = ("slow", "host", "cluster")
_NAME: Final = "rings"


@dataclass
class Family:
    cases: int = 0
    chosen: int = 0


@dataclass
class Selection:
    ring: Ring
    commit: str
    added: Mapping[str, str]
    over: tuple[str, ...] = ()
    """Modules of changed packages that the time cap left out."""
    after_check: bool = False
    """True if the ring ``check`` ran on the same sources."""
    part: str = ""
    """Number and count of the part that runs; empty: everything."""
    families: dict[str, Family] = field(default_factory=lambda: collections.defaultdict(Family))

    def has_module(self, path: Path) -> bool:
        """Return whether this run imports a file: always if it is not a test module, else if the run includes the module."""
        if not path.name.startswith("test_") or not path.is_relative_to(ROOT / "tests"):
            return True
        module = str(path.relative_to(ROOT / "tests"))
        if self.after_check and _is_of_check(path) and not self._has_more(path):
            return False
        return self._is_of_ring(module) and (not self.part or module in self._modules)

    def _has_more(self, path: Path) -> bool:
        marks = (*_MARKED, "sample") if self.ring == "all" else _MARKED
        text = path.read_text(encoding="utf-8")
        return any(f"mark.{mark}" in text for mark in marks)

    def _is_of_ring(self, module: str) -> bool:
        return module in self.added or rings.includes(self.ring, rings.ring_of(module))

    @functools.cached_property
    def _modules(self) -> frozenset[str]:
        number, _, of = self.part.partition("/")
        every = (str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").rglob("test_*.py"))
        return parts.part(int(number), int(of), filter(self._is_of_ring, every), parts.seconds())

    def has(self, item: pytest.Item, numbers: dict[str, int]) -> bool:
        is_marked = any(item.get_closest_marker(mark) for mark in _MARKED)
        if self.ring == "check" and is_marked:
            return False
        sample = item.get_closest_marker("sample")
        is_of_check = not is_marked and _is_of_check(item.path)
        if self.after_check and is_of_check and not (sample and self.ring == "all"):
            return False
        if sample is None:
            return True
        of, name = sample.args
        index = numbers[name] = numbers.get(name, -1) + 1
        is_chosen = self.ring == "all" or rings.is_in_sample(index, of, self.commit, name)
        self.families[name].cases += 1
        self.families[name].chosen += is_chosen
        return is_chosen

    def lines(self) -> Iterator[str]:
        if self.part:
            yield f"part {self.part}"
        if self.ring == "test":
            yield f"ring: test; seed: {self.commit[:12] or 'none, there is no commit'} ({SEED}={self.commit[:12]} runs the same)"
            for module, why in self.added.items():
                yield f"added: tests/{module} ({why})"
            if self.over:
                yield f"changed too, but beyond {rings.CAP_SECONDS} processor seconds (make test-all): {', '.join(self.over)}"
        else:
            yield f"ring: {self.ring}"


@functools.cache
def _is_of_check(path: Path) -> bool:
    tests = ROOT / "tests"
    return path.is_relative_to(tests) and rings.ring_of(str(path.relative_to(tests))) == "check"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--after-check", action="store_true", help="leave out what a run of the ring check has run")
    parser.addoption("--part", default="", help="run one of the parts of the ring, such as 1/2")
    parser.addoption("--ring", choices=rings.RINGS, help="run one ring of tests/rings.py, and those before it")


def pytest_configure(config: pytest.Config) -> None:
    ring: Ring | None = config.getoption("--ring")
    if ring is None and (config.getoption("--after-check") or config.getoption("--part")):
        raise pytest.UsageError("--after-check and --part need --ring")
    if ring is not None:
        given = cast("dict[str, Any]", getattr(config, "workerinput", {})).get(_NAME)
        chosen = dataclasses.replace(decided(ring), after_check=config.getoption("--after-check"), part=config.getoption("--part"))
        config.pluginmanager.register(Selecting(Selection(**given) if given else chosen), _NAME)


def decided(ring: Ring, environment: Mapping[str, str] = os.environ, repository: Path = ROOT) -> Selection:
    commit = environment.get(SEED, "") or _git(repository, "rev-parse", "HEAD").strip()
    if not set(commit) <= set(string.hexdigits):
        raise pytest.UsageError(f"{SEED}={commit}: give a commit's hexadecimal digits; the first lines of a run name them")
    if ring != "test":
        return Selection(ring, commit, {})
    changed = changed_within_a_day(repository)
    added = {each.row.module: each.why for each in rings.additions(commit, changed)}
    return Selection(ring, commit, added, tuple(module for module in rings.reasons(changed) if module not in added))


def changed_within_a_day(repository: Path) -> list[str]:
    """Return files changed on the day before the last commit, or since."""
    seconds = _git(repository, "log", "-1", "--format=%ct").strip()
    if not seconds:
        return []
    since = int(seconds) - 24 * 3600
    committed = _git(repository, "log", f"--since={since}", "--min-parents=1", "--no-renames", "--name-only", "--format=")
    edited = _git(repository, "diff", "--no-renames", "--name-only", "HEAD") + _git(
        repository, "ls-files", "--others", "--exclude-standard"
    )
    return sorted({*committed.split("\n"), *edited.split("\n")} - {""})


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-c", "safe.directory=*", "-C", repository, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return "" if done.returncode else done.stdout


@pytest.fixture(scope="session")
def is_short(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--ring") == "test")


class Selecting:
    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return None if self._selection.has_module(collection_path) else True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        numbers: dict[str, int] = {}
        chosen = {id(item): self._selection.has(item, numbers) for item in items}
        left_out = [item for item in items if not chosen[id(item)]]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if chosen[id(item)]]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        chosen = self._selection
        node.workerinput[_NAME] = {
            "ring": chosen.ring,
            "commit": chosen.commit,
            "added": dict(chosen.added),
            "after_check": chosen.after_check,
            "part": chosen.part,
        }

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Print the selection; pytest would hide it in its header with ``-q``."""
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and not hasattr(session.config, "workerinput"):
            for line in self._selection.lines():
                reporter.write_line(line)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the sizes of sampled families to the main process, because only workers collect tests."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_NAME] = {name: (family.cases, family.chosen) for name, family in self._selection.families.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: WorkerController) -> None:
        for name, (cases, chosen) in getattr(node, "workeroutput", {}).get(_NAME, {}).items():
            self._selection.families[name] = Family(cases, chosen)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, family in sorted(self._selection.families.items()):
            terminalreporter.write_line(f"sample: {name}: {family.chosen} of {family.cases} cases")
