"""Run one command of the plugin and return its exit code.

As kubectl: 0, 1 for any failure including arguments, and 128 plus the signal's number (SIGPIPE without a reader); no
tracebacks.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec.password import Password
from apiserver.kubectl import (
    access,
    acting,
    chosen_node,
    console,
    creating,
    displays,
    domainxml,
    etcd_move,
    fencing,
    flags,
    guestinfo,
    logs,
    migrations,
    node_list,
    outdated,
    passwords,
    portforward,
    rollout,
    screenshot,
    ssh,
    top,
    usbredir,
    verbs,
    versions,
    volumes,
)
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure, describe, first


def run(arguments: list[str] | None) -> int:
    """Run one command; return its exit code. ``arguments`` None: the process' own."""
    # It logs errors that it also raises.
    logging.basicConfig(level=logging.CRITICAL)
    return exit_code(lambda: _parse_and_do(arguments))


def exit_code(command: Callable[[], int]) -> int:
    """Run ``command``; return its exit code; for an exception, print it and return 1; for Ctrl-C or a broken pipe, 130 or 141."""
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
        return _failed(f"error: {type(cause).__name__} in kubectl virt; this is a bug: {describe(cause)}")
    return code


def _failed(text: str) -> int:
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:  # standard error has no reader either
        _drop(2)
    return 1


def _drop(stream: int) -> None:
    """Redirect standard output (1) or error (2) to ``/dev/null``: Python would exit with 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream)
    os.close(nowhere)


def _parse_and_do(arguments: list[str] | None) -> int:
    try:
        parsed = flags.parse(arguments)
    except SystemExit as end:  # --help, or argparse's error
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
        if signal.getsignal(number) is not signal.SIG_IGN:  # by nohup, or a shell without job control
            asyncio.get_running_loop().add_signal_handler(number, end, number)

    async def load() -> Access:
        found = await access.load(parsed.selection)
        _check(found, getattr(parsed, "names", None) or [parsed.name])
        return found

    match parsed.command:
        case "console":
            return await console.attach(console.Settings(parsed.name, parsed.wait, parsed.reconnect, parsed.linger, parsed.port), load)
        case "vnc" | "spice":
            display = displays.DISPLAYS[parsed.command]
            return await displays.show(display, parsed.name, load, port=parsed.port, proxy_only=parsed.proxy_only)
        case "usbredir":
            return await usbredir.redirect(parsed.name, load, slot=parsed.slot, port=parsed.port, device=parsed.device)
        case "logs" | "port-forward" | "ssh" | "scp" | "screenshot" | "set-password":
            return await _reach(parsed, load)
        case rollout.COMMAND:
            return await rollout.run(parsed, lambda: access.load(parsed.selection))
        case "guestinfo" | "domainxml" | "create" | "version" | top.COMMAND | "nodes" | "fence" | "unfence" | "addvolume" | "removevolume":
            print(await _text(parsed, load))
            return 0
        case _:
            return await _act(parsed, load)


def _check(way: Access, names: Sequence[str]) -> None:
    try:
        for name in names:
            VIRTUAL_MACHINES.path(way.namespace, name)
    except errors.BadRequest as error:
        raise Failure(f"error: {error}") from error


async def _text(parsed: argparse.Namespace, load: migrations.Load) -> str:
    match parsed.command:
        case "create":
            return creating.run(_wanted(parsed))
        case "version":
            of_server = None if parsed.client else await versions.server(await access.load(parsed.selection))
            return versions.printed(of_server, parsed.output)
        case node_list.COMMAND:
            return await node_list.show(await access.load(parsed.selection))
        case "fence" if not parsed.off:
            raise Failure(fencing.WITHOUT_OFF)
        case "fence":
            return await fencing.fence(await access.load(parsed.selection), parsed.node, None if parsed.yes else _asker())
        case "unfence":
            return await fencing.unfence(await access.load(parsed.selection), parsed.node)
        case "addvolume" | "removevolume":
            return await volumes.edit(await load(), parsed)
        case "guestinfo":
            return await guestinfo.show(await load(), parsed.name, parsed.output)
        case top.COMMAND:
            shown = top.Wanted(parsed.name or "", parsed.all_namespaces, parsed.selector, parsed.sort_by, headers=not parsed.no_headers)
            return await top.show(await (load() if parsed.name else access.load(parsed.selection)), shown)
        case _:
            return await domainxml.show(await load(), parsed.name)


def _asker() -> Callable[[str], str]:
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failure("error: standard input is not a terminal: confirm with --yes")
    return creating.ask


async def _reach(parsed: argparse.Namespace, load: migrations.Load) -> int:
    if parsed.command == "logs":
        return await logs.show(logs.Settings(parsed.name, parsed.follow, parsed.tail, parsed.port), load)
    if parsed.command == "screenshot":
        await screenshot.take(await load(), parsed.name, parsed.output)
        return 0
    if parsed.command == "set-password":
        way, given = await load(), Password(parsed.username, passwords.asked(parsed.username), parsed.encrypted)
        dry_run = parsed.dry_run == "server"
        return await acting.each(parsed.names, lambda name: passwords.set_password(way, name, given, dry_run=dry_run))
    if parsed.command == "port-forward" and parsed.stdio:
        return await portforward.on_standard_streams(parsed.name, load, parsed.ports[0].forward)
    if parsed.command == "port-forward":
        return await portforward.forward_all(parsed.name, load, parsed.ports, parsed.address)
    login = ssh.Login(parsed.name, parsed.username, parsed.port, parsed.identity_file, tuple(parsed.ssh_option))
    vm = await ssh.machine(await load(), parsed.name)
    if parsed.command == "ssh":
        return ssh.replace_process(ssh.ssh(login, parsed.selection, vm, parsed.guest_command))
    return ssh.replace_process(ssh.scp(login, parsed.selection, vm, parsed.paths, recursive=parsed.recursive))


async def _act(parsed: argparse.Namespace, load: migrations.Load) -> int:
    if parsed.command == "move-etcd":
        await etcd_move.run(parsed.selection, parsed.to)
        return 0
    if parsed.command == outdated.COMMAND:
        print(await outdated.show(await access.load(parsed.selection), all_namespaces=parsed.all_namespaces))
        return 0
    waiting, dry_run = migrations.Waiting(parsed.wait, parsed.timeout, sys.stdout.isatty()), parsed.dry_run == "server"
    if parsed.command == migrations.CANCEL:
        named = parsed.migrations
        return await acting.each(
            parsed.names, lambda name: migrations.cancel(name, load, waiting, by_migration=name in named, dry_run=dry_run)
        )
    body = verbs.body_of(parsed)
    if parsed.command == "migrate":
        if parsed.node:
            await chosen_node.warn(await load(), parsed.node)
        return await acting.each(parsed.names, lambda name: migrations.migrate(name, load, waiting, body, dry_run=dry_run))
    return await acting.act(load, parsed.names, parsed.command, body, waiting, dry_run=dry_run)


def _wanted(parsed: argparse.Namespace) -> creating.Wanted:
    given = {each: getattr(parsed, each) for each in creating.Wanted.__dataclass_fields__ if each != "namespace"}
    return creating.Wanted(**given, namespace=parsed.selection.namespace)
