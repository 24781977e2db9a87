"""What one scrape of virt-handler's page costs with 50 guests, without TLS; their launchers are fakes in this process.

``python -m benchmarks.scrapes`` prints the processor time of a page, also of the fakes' half of it, and its share at one scrape per 30 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from controller.runtime.reconciling import Request
from handler.metrics.statistics import GuestStatistics
from handler.pods import launcher
from handler.pods.links import Holder, Links
from handler.pods.process import Launcher
from handler.pods.reads import Reads
from launcher.protocol import statistics
from tests.component.handler.world import eventually
from tests.component.test_monitoring import a_machine, every_statistic, running
from tests.fakes.launcher import FakeLauncher

SECONDS: Final = 30
DEVICES: Final = [{"name": "root", "target": "vda"}, {"name": "default", "target": "tap0"}]


async def measure(guests: int, rounds: int) -> dict[str, float]:
    """Return a statistics page's bytes, its processor milliseconds, and the percentage of a core if read every ``SECONDS``."""
    fakes = {f"pod-{number}": FakeLauncher(f"pod-{number}") for number in range(guests)}

    def identify(pid: int, pod_uid: str) -> Launcher:
        return fakes[pod_uid].identify(pid, pod_uid)

    async with AsyncExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        links = Links(partial(launcher.connect, kubelet=root, identify=identify), changed=lambda _: None)
        for each in fakes.values():
            each.texts[statistics.NAME] = every_statistic()
            await stack.enter_async_context(each.serving(root))
        await stack.enter_async_context(running(links.run()))
        held = [links.acquire(uid, Holder("vm", Request("ns", uid))) for uid in fakes]
        await eventually(lambda: all(each.connection is not None for each in held))
        machines = [a_machine(uid, "Running", podUID=uid, devices=DEVICES) for uid in fakes]
        page = GuestStatistics("node1", lambda: machines, Reads(links, wait_seconds=5, fresh_seconds=0.0))
        size = len(await page.page())
        began = time.process_time()
        for _ in range(rounds):
            found = await page.page()
            assert found.count(b"kubevirt_vmi_memory_resident_bytes{") == guests
        milliseconds = round((time.process_time() - began) / rounds * 1000, 2)
    return {
        "guests": guests,
        "bytes": size,
        "cpu_milliseconds": milliseconds,
        "percent_of_a_core": round(milliseconds / (10 * SECONDS), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guests", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.guests, given.rounds))))


if __name__ == "__main__":
    main()
