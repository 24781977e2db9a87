"""``python -m tests.cuts.client ADDRESS``: asks by HTTP ten times a second, by a new connection each time, and prints what came of it.

Each line has a monotonic clock's seconds and ``ok``, or why there was no answer; that clock is the machine's, the same for all processes.
"""

from __future__ import annotations

import asyncio
import sys
import time

PERIOD_SECONDS = 0.1
PATIENCE_SECONDS = 3


async def ask(address: str) -> None:
    """Ask once and print a line."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(address, 80)
            try:
                writer.write(f"GET / HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
                answer = await reader.read()
            finally:
                writer.close()
        said = "ok" if b" 200 " in answer.partition(b"\r\n")[0] else f"another answer: {answer[:60]!r}"
    except (OSError, TimeoutError) as error:
        said = type(error).__name__
    print(f"{time.monotonic():.3f} {said}", flush=True)


async def main(address: str) -> None:
    """Ask without end."""
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(ask(address))
            await asyncio.sleep(PERIOD_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
