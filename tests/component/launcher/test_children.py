from __future__ import annotations

import asyncio
import os
import signal

import pytest

from launcher.main.programs.children import Children, CommandFailed, terminate

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


async def test_a_command_returns_its_output() -> None:
    children = Children()
    with children.reaping():
        assert await children.run(["/bin/sh", "-c", "echo out; echo err >&2"], ENVIRONMENT) == "out\nerr"


async def test_a_failing_command_is_reported_with_its_words() -> None:
    children = Children()
    with children.reaping(), pytest.raises(CommandFailed, match="ended with 3: no such disk"):
        await children.run(["/bin/sh", "-c", "echo no such disk >&2; exit 3"], ENVIRONMENT)


async def test_a_command_that_does_not_end_is_killed() -> None:
    children = Children(run_seconds=0.1)
    with children.reaping(), pytest.raises(CommandFailed, match="killed after"):
        await children.run(["/bin/sleep", "60"], ENVIRONMENT)


async def test_the_exit_of_a_process_is_known_and_how() -> None:
    children = Children()
    with children.reaping():
        pid, exited = children.start(["/bin/sleep", "60"], ENVIRONMENT)
        terminate(pid, signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await exited == -signal.SIGTERM
        terminate(pid, signal.SIGTERM)


async def test_unawaited_children_are_reaped() -> None:
    children = Children()
    with children.reaping():
        pid = os.posix_spawn("/bin/true", ["true"], ENVIRONMENT)
        async with asyncio.timeout(30):
            while os.path.exists(f"/proc/{pid}"):  # noqa: PTH110  # gone only once it was reaped
                await asyncio.sleep(0.01)


async def test_signals_that_python_ignores_are_not_ignored_by_children() -> None:
    children = Children()
    with children.reaping():
        _pid, exited = children.start(["/bin/sh", "-c", "kill -PIPE $$; exit 0"], ENVIRONMENT)
        async with asyncio.timeout(30):
            assert await exited == -signal.SIGPIPE
