"""``virt-controller``: flags, logging, signals."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import AsyncExitStack, suppress

import uvloop

from apiserver import logs
from apiserver.client.config import Config, ConfigError
from apiserver.client.rest import Client
from controller.manager import options, wiring
from controller.manager.metrics import Metrics
from controller.runtime.clock import SystemClock
from controller.runtime.leaderelection import LeadershipLost
from controller.runtime.recorder import Recorder

logger = logging.getLogger("virt-controller")


async def run(given: options.Options) -> None:
    """Run virt-controller until SIGTERM or SIGINT. Raises ConfigError; LeadershipLost in an exception group."""
    config = Config.load(given.kubeconfig)
    clock = SystemClock()
    async with AsyncExitStack() as clients:
        client, asking, electing = [await clients.enter_async_context(Client(config, user_agent=wiring.USER_AGENT)) for _ in range(3)]
        environment = wiring.Environment(
            client=client,
            asking=asking,
            electing=electing,
            recorder=Recorder(client, wiring.USER_AGENT, clock),
            clock=clock,
            options=given,
            metrics=Metrics(),
            namespace=given.namespace or config.namespace,
        )
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(wiring.run(environment))
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, working.cancel)
            with suppress(asyncio.CancelledError):
                await working


def main() -> None:
    """Run the process. Exit codes: 0 after a signal, 1 if the lease was lost, 2 if the configuration is invalid."""
    given = options.parse()
    logs.configure(given.log_level)
    code = 0
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(given))
    except* ConfigError as error:
        logger.error("cannot start", extra={"error": _innermost(error)})  # noqa: TRY400 - the message says it all
        code = 2
    except* LeadershipLost as error:
        logger.error("leadership lost", extra={"error": _innermost(error)})  # noqa: TRY400 - as above
        code = 1
    sys.exit(code)


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


if __name__ == "__main__":
    main()
