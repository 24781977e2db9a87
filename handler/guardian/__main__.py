"""The guardian: ``python -m handler.guardian``."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import sys
import threading
from pathlib import Path

from apiserver import logs
from apiserver.apis.virt.places import deadlines, hypervisors
from apiserver.client.config import Config, ConfigError
from apiserver.client.rest import Client
from controller.runtime.clock import SystemClock
from handler.guardian import attesting, options, processes
from handler.guardian.deadline_file import DeadlineFile
from handler.guardian.guarding import Guardian, Settings
from handler.guardian.killer import Killer
from handler.identity import keys

logger = logging.getLogger("guardian")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def connection(name: str, config: Config, limit: float) -> Client:
    """Return a client without retries: a refusal then says of the only request that it is not carried out."""
    return Client(config, user_agent=f"virt-guardian/{name}", timeout_seconds=limit, max_retries=0)


def promised_pods(given: options.Options, deadline: DeadlineFile) -> set[str]:
    """Return the uids of pods with processes of guests that also end without the guardian, by the file."""
    return {each.pod_uid for each in processes.guests(given.proc)} & deadline.holders() if given.has_guests else set()


def may_promise(given: options.Options) -> bool:
    """Return whether this guardian may promise: its node cannot be paused, by its processors, or the administrator accepts that."""
    return given.virtual_nodes or not hypervisors.may_be_virtual((given.proc / "cpuinfo").read_text())


async def run(given: options.Options, config: Config, boot: str) -> None:
    """Run the guardian until SIGTERM or SIGINT; then it takes its promise back if the API server answers. ``boot``: the node's boot ID."""
    identity = await keys.self_signed(attesting.SERVER_NAME)
    killer = Killer(deadlines.elapsed, lambda pods: processes.end(pods, given.proc) if given.has_guests else ())
    with contextlib.closing(DeadlineFile(given.directory / given.name, boot)) as deadline:
        address = f"{given.pod_ip}:{given.port}"
        promises = may_promise(given)
        if not promises:
            logger.warning("the node may be a virtual machine: no promise, and no attestation (guardian.virtualNodes)")
        settings = Settings(given.name, given.namespace, given.voters, boot, address, identity.certificate.decode(), promises)
        async with connection(given.name, config, settings.times.request) as client:
            pods = functools.partial(promised_pods, given, deadline)
            guardian = Guardian(client, settings, killer, deadline, pods, SystemClock(), deadlines.elapsed)
            thread = threading.Thread(target=killer.run, name="killer", daemon=True)
            thread.start()
            try:
                async with asyncio.TaskGroup() as tasks:
                    parts = (
                        tasks.create_task(guardian.run()),
                        tasks.create_task(attesting.serve(given.pod_ip, given.port, identity, given.name, guardian.is_cut_off)),
                    )
                    loop = asyncio.get_running_loop()
                    for number in (signal.SIGTERM, signal.SIGINT):
                        loop.add_signal_handler(number, lambda: [each.cancel() for each in parts])
                await guardian.withdraw()
            finally:
                killer.stop()
                thread.join()


def main(arguments: list[str] | None = None) -> int:
    """Run the guardian; return 0 after a signal, 1 for an invalid kubeconfig; exits with status 2 for invalid flags."""
    given = options.parse(arguments)
    logs.configure(given.log_level)
    try:
        config = Config.load(given.kubeconfig)
    except ConfigError as error:
        logger.error("%s", error)  # noqa: TRY400 - the message says it
        return 1
    asyncio.run(run(given, config, BOOT_ID.read_text().strip()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
