"""Run one command of the plugin and return its exit code.

As kubectl: 0, 1 for any failure including arguments, and 128 plus the number of the signal (SIGPIPE without a reader).
Tracebacks are never shown.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import (
    access,
    console,
    domainxml,
    etcd_move,
    flags,
    guestinfo,
    migrations,
    operating,
    outdated,
    resuming,
    usbredir,
    verbs,
    vnc,
)
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure, describe, first


def run(arguments: list[str] | None) -> int:
    """Run one command; return its exit code."""
    # kubernetes_asyncio logs errors that it also raises.
    logging.basicConfig(level=logging.CRITICAL)
    return exit_code(lambda: _parse_and_do(arguments))


def exit_code(command: Callable[[], int]) -> int:
    """Run a command, print its error, and return its exit code."""
    try:
        code = command()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop(1)
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Failure as failure:
        return _failed(str(failure))
    except OSError as error:
        _drop(1)
        return _failed(f"error: {describe(error)}")
    except Exception as error:  # noqa: BLE001  a mistake of ours: a line to report instead of a page
        cause = first(error)
        return _failed(f"error: {type(cause).__name__} in kubectl virt, which is a mistake in it: {describe(cause)}")
    return code


def _failed(text: str) -> int:
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:  # standard error has no reader either
        _drop(2)
    return 1


def _drop(stream: int) -> None:
    """Redirect standard output (1) or error (2) to ``/dev/null``: Python would retry, complain, and exit with 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream)
    os.close(nowhere)


def _parse_and_do(arguments: list[str] | None) -> int:
    try:
        parsed = flags.parse(arguments)
    except SystemExit as end:  # --help, or an error that argparse printed
        return end.code if isinstance(end.code, int) else 1
    ended_by: list[signal.Signals] = []
    try:
        return asyncio.run(_do(parsed, ended_by))
    except asyncio.CancelledError:
        return 128 + (ended_by[0] if ended_by else signal.SIGINT)


async def _do(parsed: argparse.Namespace, ended_by: list[signal.Signals]) -> int:
    task = asyncio.current_task()

    def end(number: signal.Signals) -> None:
        ended_by.append(number)
        if task is not None:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # exit cleanly: the terminal is restored
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored by nohup, or by a shell without job control
            asyncio.get_running_loop().add_signal_handler(number, end, number)

    async def load() -> Access:
        found = await access.load(parsed.selection)
        try:
            VIRTUAL_MACHINES.path(found.namespace, parsed.name)
        except errors.BadRequest as error:  # an invalid name or namespace
            raise Failure(f"error: {error}") from error
        return found

    match parsed.command:
        case "console":
            return await console.attach(console.Settings(parsed.name, parsed.wait, parsed.reconnect, parsed.linger, parsed.port), load)
        case "vnc":
            return await vnc.show(parsed.name, load, port=parsed.port, proxy_only=parsed.proxy_only)
        case "usbredir":
            return await usbredir.redirect(parsed.name, load, slot=parsed.slot, port=parsed.port, device=parsed.device)
        case "guestinfo" | "domainxml":
            print(await _read(parsed, await load()))
            return 0
        case "move-etcd":
            await etcd_move.run(parsed.selection, parsed.to)
            return 0
        case _:
            return await _act(parsed, load)


async def _read(parsed: argparse.Namespace, way: access.Access) -> str:
    if parsed.command == "guestinfo":
        return await guestinfo.show(way, parsed.name, parsed.output)
    return await domainxml.show(way, parsed.name)


async def _act(parsed: argparse.Namespace, load: migrations.Load) -> int:
    """Run a verb, or a command on migrations or releases; return the exit code."""
    if parsed.command == outdated.COMMAND:
        print(await outdated.show(await access.load(parsed.selection), all_namespaces=parsed.all_namespaces))
        return 0
    if parsed.command == migrations.CANCEL:
        waiting = migrations.Waiting(wait=parsed.wait, seconds=parsed.timeout)
        return await migrations.cancel(parsed.name, load, waiting, by_migration=parsed.migration)
    if parsed.command == "migrate":
        waiting = migrations.Waiting(wait=parsed.wait, seconds=parsed.timeout)
        return await migrations.migrate(parsed.name, load, waiting, priority=parsed.priority)
    body = verbs.body_of(parsed)
    if parsed.command == "resume":
        return await resuming.resume(await load(), parsed.name, migrations.Waiting(wait=parsed.wait, seconds=parsed.timeout))
    if parsed.command in operating.VERBS:
        waiting = migrations.Waiting(wait=parsed.wait, seconds=parsed.timeout)
        return await operating.operate(await load(), parsed.name, parsed.command, waiting, body)
    print(await verbs.act(await load(), parsed.name, parsed.command, body))
    return 0
