"""``make mutants``, or ``python -m tests.mutants [--workers 2] [--propose FILE] [--only FILE] [MODULE…]``.

Prints survivors without a reason: ``file:line``, kind of change, both lines. ``--propose`` writes entries for them; ``--only`` repeats such
a file's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from tests.mutants import environment, running, survivors, table
from tests.mutants.mutant import Key
from tests.testbed import progress


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Mutation tests of the modules that decide and guard.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="name or path of a module; without any, all")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (2)")
    parser.add_argument("--propose", type=Path, metavar="FILE", help="write entries for survivors.toml, without their reasons")
    parser.add_argument("--only", type=Path, metavar="FILE", help="only the mutants of which FILE has entries, with or without reasons")
    given = parser.parse_args()
    try:
        modules = table.chosen(given.modules)
        reasons = survivors.read(survivors.PATH.read_text(encoding="utf-8"))
        only = survivors.entries(given.only.read_text(encoding="utf-8")) if given.only is not None else None
        results = asyncio.run(_run(modules, given.workers, only))
    except (ValueError, running.Broken, progress.StepFailed) as error:
        progress.say(str(error))
        return 2
    every = [mutant.key for result in results for mutant in result.made]
    alive = [mutant.key for result in results for mutant in result.survived]
    entries = reasons if only is None else {key: reason for key, reason in reasons.items() if key in only}
    verdict = survivors.judge(every, alive, entries, [module.path for module in modules])
    _tell(results, verdict, reasons)
    if given.propose is not None:
        given.propose.write_text(survivors.written(verdict.unjudged), encoding="utf-8")
    return 0 if verdict.passed else 1


async def _run(modules: Sequence[table.Module], workers: int, only: Container[Key] | None) -> list[running.Result]:
    packages = environment.packages()
    with environment.copied() as copy:
        with progress.step("Make the mutants"):
            made = await running.make(modules, copy, packages, workers)
        if only is not None:
            made = {module: tuple(each for each in mutants if each.key in only) for module, mutants in made.items()}
        return await running.run(made, copy, workers)


def _tell(results: Sequence[running.Result], verdict: survivors.Verdict, reasons: Mapping[Key, str]) -> None:
    for result in results:
        for mutant in result.survived:
            if mutant.key in verdict.unjudged:
                print(f"{mutant.key.module}:{mutant.line}: {mutant.key.operator} survived in {mutant.key.function}")
                for sign, lines in (("-", mutant.key.before), ("+", mutant.key.after)):
                    print("\n".join(f"    {sign} {line}" for line in lines.split("\n")))
    for key in verdict.noticed:
        which = f"{key.module}, {key.function}, {key.operator}, {key.nth}"
        print(f"survivors.toml: a test notices it by now, the entry can go: {which}: {key.after}")
    for key in verdict.gone:
        print(f"survivors.toml: no such change any more: {key.module}, {key.function}, {key.operator}: {key.before}")
    print(f"\n{'module':<56} {'mutants':>7} {'killed':>7} {'by time':>7} {'reason':>7} {'unjudged':>8} {'seconds':>8} {'each':>6}")
    for result in results:
        judged = sum(mutant.key in reasons for mutant in result.survived)
        print(
            f"{result.module.path:<56} {len(result.made):>7} {result.outcomes['killed']:>7} {result.outcomes['timeout']:>7} {judged:>7} "
            f"{len(result.survived) - judged:>8} {result.seconds:>8.0f} {result.seconds / max(1, len(result.made)):>6.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
