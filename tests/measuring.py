"""The pytest plugin ``--write-seconds``, which measures the test modules."""

from __future__ import annotations

import collections

import pytest

from tests import parts


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-seconds", action="store_true", help=f"write how long the modules took to {parts.SECONDS.name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measuring(), "seconds")


class Measuring:
    def __init__(self) -> None:
        self._spent: dict[str, float] = collections.defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = {module: each for module, each in parts.seconds().items() if (parts.SECONDS.parent / module).exists()}
        parts.SECONDS.write_text(parts.written(self._spent, known), encoding="utf-8")
