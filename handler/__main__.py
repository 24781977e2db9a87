"""virt-handler: ``python -m handler``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys

import uvloop

from apiserver import logs
from apiserver.client.config import Config, ConfigError
from apiserver.client.rest import Client
from handler import options
from handler.agent import DEFAULT_LIMITS, Agent, Limits
from handler.devices.acceleration import Trials
from handler.devices.detection import Detection

logger = logging.getLogger("handler")


async def run(given: options.Options, config: Config, limits: Limits = DEFAULT_LIMITS, trials: Trials | None = None) -> None:
    """Run virt-handler until SIGINT, or until SIGTERM and the end of running migrations; a second SIGTERM ends it at once."""
    task, asked = asyncio.current_task(), asyncio.Event()
    assert task is not None  # noqa: S101 - inside a coroutine

    def terminate() -> None:
        if asked.is_set():
            task.cancel()
        asked.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    loop.add_signal_handler(signal.SIGTERM, terminate)
    async with Client(config, user_agent=f"virt-handler/{given.node_name}") as client:
        agent = Agent(given, client, Detection(given.acceleration, trials=trials), limits=limits)
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(agent.run())
            await asked.wait()
            await agent.finish()
            working.cancel()


def main(arguments: list[str] | None = None) -> int:
    """Run virt-handler; return 0 after a signal, 1 for an invalid kubeconfig; exits with status 2 for invalid flags."""
    given = options.parse(arguments)
    logs.configure(given.log_level)
    try:
        config = Config.load(given.kubeconfig)
    except ConfigError as error:
        logger.error("%s", error)  # noqa: TRY400 - the message says it
        return 1
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(run(given, config))
    logger.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
