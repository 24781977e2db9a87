"""Runs one module's tests for each changed source: ``python -m tests.mutants.worker MODULE TEST…``.

pytest starts once, and continues in a fork for each change, which saves two seconds each. The tests' imports are loaded before, except the
module, which the changed source replaces in memory, and its importers.

Reads JSON lines with ``source``, and answers each with ``outcome`` (``survived``, ``killed``, ``timeout``). Its first line is about the
unchanged module: ``ready`` with the tests' seconds, or ``broken`` with the end of pytest's output.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, TextIO

import pytest

OPTIONS: Final = ("-x", "-q", "--tb=line", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:schemathesis")
OURS: Final = ("apiserver", "controller", "handler", "launcher", "importer", "storage", "certs")
SLOWER: Final = 4
"""Tests hang after this many times their usual duration."""
SPARE_CPU_SECONDS: Final = 1
SPARE_SECONDS: Final = 15.0
"""Added to these times: work is measured in processor time, only waiting by the clock."""
_TAIL: Final = 4000


class Replaced(importlib.machinery.SourceFileLoader):
    def __init__(self, module: str, path: str, source: str) -> None:
        super().__init__(module, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.get_filename(fullname), "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, loader: Replaced | None) -> None:
        self._module = module
        self._loader = loader

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the changed module, None for others. Raises ImportError while the changed source is not known."""
        if fullname != self._module:
            return None
        if self._loader is None:
            raise ImportError(f"{fullname} is what is changed")
        return importlib.util.spec_from_file_location(fullname, self._loader.path, loader=self._loader)


@dataclass(frozen=True)
class Ending:
    outcome: str
    seconds: float
    cpu_seconds: float


class Forking:
    """A pytest plugin that forks at the end of pytest's own start."""

    def __init__(self, module: str, requests: TextIO, answers: TextIO, output: TextIO) -> None:
        self.is_reached = False
        self.is_child = False
        self.names: int | None = None
        self._path = module
        self._module = module.removesuffix(".py").replace("/", ".")
        self._requests = requests
        self._answers = answers
        self._output = output
        self._limits: tuple[int, float] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self) -> int | None:
        """Serve requests, and return 0; in each forked child return None, so pytest runs the tests there."""
        self.is_reached = True
        if self._module in sys.modules:
            self.answer(outcome="broken", output=f"{self._module} is imported by a conftest.py or by pytest's plugins")
            return 0
        from hypothesis import settings  # not earlier: pytest must import its plugins itself

        # The same few examples for every change, independent of other changes. A survivor must run all of them; a rare example needs a
        # separate test.
        settings.register_profile("mutants", parent=settings.default, database=None, derandomize=True, max_examples=10)
        settings.load_profile("mutants")
        source = Path(self._path).read_text(encoding="utf-8")
        ending = self._learn(source)
        if ending is not None and ending.outcome == "survived":
            ending = self._run(source)
        if ending is None:
            return None
        if ending.outcome != "survived":
            self.answer(outcome="broken", output=end_of(self._output))
            return 0
        self._limits = (math.ceil(SLOWER * ending.cpu_seconds) + SPARE_CPU_SECONDS, SLOWER * ending.seconds + SPARE_SECONDS)
        self.answer(outcome="ready", seconds=ending.seconds)
        for line in self._requests:
            ending = self._run(json.loads(line)["source"])
            if ending is None:
                return None
            self.answer(outcome=ending.outcome)
        return 0

    def answer(self, **fields: object) -> None:
        print(json.dumps(fields), file=self._answers, flush=True)

    def _learn(self, source: str) -> Ending | None:
        """Run the tests once in a child, and import what they imported; return the run's end, or None in the child."""
        reading, writing = os.pipe()
        self.names = writing
        ending = self._run(source)
        if ending is None:
            os.close(reading)
            return None
        os.close(writing)
        self.names = None
        with os.fdopen(reading) as names:
            self._import(json.loads(names.read() or "[]"))
        return ending

    def _import(self, names: list[str]) -> None:
        blocked = Finder(self._module, None)
        sys.meta_path.insert(0, blocked)
        for name in names:
            try:
                importlib.import_module(name)
            except ImportError:
                continue
        sys.meta_path.remove(blocked)
        gc.collect()
        gc.freeze()

    def _run(self, source: str) -> Ending | None:
        self._output.flush()
        self._output.truncate(0)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            self._become_child(source)
            return None
        descriptor = os.pidfd_open(child)
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        ended = waiting.poll(None if self._limits is None else self._limits[1] * 1000)
        if not ended:
            os.killpg(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
        os.close(descriptor)
        too_long = not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL))
        outcome = "timeout" if too_long else "survived" if status == 0 else "killed"
        return Ending(outcome, time.monotonic() - began, used.ru_utime + used.ru_stime)

    def _become_child(self, source: str) -> None:
        self.is_child = True
        os.setpgid(0, 0)
        if self._limits is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (self._limits[0], self._limits[0] + 1))
        sys.meta_path.insert(0, Finder(self._module, Replaced(self._module, str(Path(self._path).absolute()), source)))


def end_of(output: TextIO) -> str:
    return Path(output.name).read_text(errors="replace")[-_TAIL:]


def imported() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in OURS]


def main() -> int:
    module, *tests = sys.argv[1:]
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryDirectory() as directory, Path(directory, "output").open("w+") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        forking = Forking(module, requests, answers, output)
        code = int(pytest.main([*OPTIONS, *tests], plugins=[forking]))
        if forking.is_child:
            if forking.names is not None:
                with os.fdopen(forking.names, "w") as names:
                    json.dump(imported(), names)
            sys.stdout.flush()
            os._exit(code)
        if not forking.is_reached:
            sys.stdout.flush()
            forking.answer(outcome="broken", output=end_of(output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
