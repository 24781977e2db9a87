"""``kubectl-virt``, which kubectl runs as ``kubectl virt``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

from apiserver.apis.meta import errors
from apiserver.apis.virt.resources import VIRTUAL_MACHINES
from apiserver.kubectl import access, console, flags, verbs, vnc
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    # kubernetes_asyncio logs what it then raises, which is what we print.
    logging.basicConfig(level=logging.CRITICAL)
    parsed = flags.parse(arguments)
    try:
        return asyncio.run(_run(parsed))
    except Failure as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


async def _run(parsed: argparse.Namespace) -> int:
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):  # end in order: the terminal is restored on the way
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)

    async def load() -> Access:
        found = await access.load(parsed.selection)
        try:
            VIRTUAL_MACHINES.path(found.namespace, parsed.name)
        except errors.BadRequest as error:  # a name or a namespace that no object can have
            raise Failure(str(error)) from error
        return found

    match parsed.command:
        case "console":
            return await console.attach(console.Settings(parsed.name, parsed.wait, parsed.reconnect), load)
        case "vnc":
            return await vnc.show(parsed.name, load, port=parsed.port, proxy_only=parsed.proxy_only)
        case verb:
            print(await verbs.act(await load(), parsed.name, verb))
            return 0


if __name__ == "__main__":
    sys.exit(main())
