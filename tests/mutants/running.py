"""Runs the mutants of modules, with several workers per module."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.mutants import environment
from tests.mutants.mutant import Mutant, mutants
from tests.mutants.table import Module
from tests.testbed import progress

TICK_SECONDS: Final = 15.0
_MAX_LINE: Final = 1 << 20


class Broken(Exception):
    """A module's tests fail without a change, or one of our programs failed."""


@dataclass
class Result:
    module: Module
    made: tuple[Mutant, ...]
    outcomes: Counter[str] = field(default_factory=Counter)
    survived: list[Mutant] = field(default_factory=list)
    baseline_seconds: float = 0.0
    seconds: float = 0.0


class Course:
    def __init__(self, made: Mapping[Module, Sequence[Mutant]]) -> None:
        self._total = sum(map(len, made.values()))
        self._done = 0
        self._survived = 0
        self._began = self._told = time.monotonic()

    def add(self, module: Module, outcome: str) -> None:
        self._done += 1
        self._survived += outcome == "survived"
        now = time.monotonic()
        if now - self._told >= TICK_SECONDS:
            self._told = now
            left = (now - self._began) / self._done * (self._total - self._done)
            told = f"{self._done} of {self._total} mutants, {self._survived} survived, about {left / 60:.0f} min left"
            progress.say(f"  … {module.path}: {told}")


async def make(modules: Sequence[Module], copy: Path, packages: Path, workers: int) -> dict[Module, tuple[Mutant, ...]]:
    turns = asyncio.Semaphore(workers)
    with _first_broken():
        async with asyncio.TaskGroup() as group:
            tasks = {module: group.create_task(_made(module, copy, packages, turns)) for module in modules}
    return {module: task.result() for module, task in tasks.items()}


async def _made(module: Module, copy: Path, packages: Path, turns: asyncio.Semaphore) -> tuple[Mutant, ...]:
    source = (copy / module.path).read_bytes()
    async with turns:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.mutants.changes"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=copy,
            env=environment.variables(packages, copy),
        )
        printed, errors = await process.communicate(source)
    if process.returncode:
        raise Broken(f"{module.path}: no mutants: {errors.decode(errors='replace')[-2000:]}")
    return tuple(mutants(module.path, source.decode(), map(json.loads, printed.splitlines())))


@contextlib.contextmanager
def _first_broken() -> Iterator[None]:
    try:
        yield
    except* Broken as errors:
        raise errors.exceptions[0] from None


async def run(made: Mapping[Module, tuple[Mutant, ...]], copy: Path, workers: int) -> list[Result]:
    course = Course(made)
    results = []
    for module, each in made.items():
        result = Result(module, each)
        began = time.monotonic()
        todo = iter(each)
        with _first_broken():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(workers, len(each))):
                    group.create_task(_work(result, todo, copy, course))
        result.seconds = time.monotonic() - began
        results.append(result)
    return results


async def _work(result: Result, todo: Iterator[Mutant], copy: Path, course: Course) -> None:
    module = result.module
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.mutants.worker", module.path, *module.tests),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=copy,
        env=environment.variables(copy),
        limit=_MAX_LINE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        first = await _answer(process.stdout, module)
        if first["outcome"] != "ready":
            raise Broken(f"{module.path}: its tests do not pass as they are:\n{first['output']}")
        result.baseline_seconds = float(str(first["seconds"]))
        for mutant in todo:
            process.stdin.write(json.dumps({"source": mutant.source}).encode() + b"\n")
            await process.stdin.drain()
            outcome = str((await _answer(process.stdout, module))["outcome"])
            result.outcomes[outcome] += 1
            if outcome == "survived":
                result.survived.append(mutant)
            course.add(module, outcome)
        process.stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


async def _answer(stream: asyncio.StreamReader, module: Module) -> dict[str, object]:
    line = await stream.readline()
    if not line:
        raise Broken(f"{module.path}: the worker ended")
    answer: dict[str, object] = json.loads(line)
    return answer
