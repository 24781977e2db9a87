from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from handler.agent import Limits
from handler.pods import limits
from handler.reconcilers.limits import DEFAULT
from launcher.protocol import codec, messages
from tests.component.handler.live import Live, live
from tests.component.handler.world import eventually
from tests.fakes.launcher import FakeLauncher
from tests.own_time import promptly

PROMPT_SECONDS = 5.0
PHASE_WRITES = 2


def state(number: int) -> messages.DomainStatus:
    return messages.DomainStatus("d", "u", "qemu", "paused" if number % 2 else "running", f"reason {number}")


async def a_chatty_machine(world: Live) -> FakeLauncher:
    made = await world.launcher("pod-chatty")
    await world.machine("chatty", "pod-chatty")
    await eventually(lambda: world.vm("chatty")["status"]["phase"] == "Running")
    return made


async def talk(world: Live, chatty: FakeLauncher, *, rounds: int, seconds: float) -> None:
    for number in range(rounds):
        chatty.change(domain=state(number), not_migratable=f"because of {number}")
        await asyncio.sleep(seconds / rounds)
        if number % (rounds // 3) == rounds // 6:
            await world.healthy_machine_follows(PROMPT_SECONDS)


async def test_frequent_changes_cause_few_writes_the_newest_last(tmp_path: Path) -> None:
    heard = Limits(links=limits.Limits(changes_per_second=1000.0))  # only the writes are limited here
    async with live(tmp_path, limits=heard) as world:
        chatty, began = await a_chatty_machine(world), time.monotonic()
        await talk(world, chatty, rounds=240, seconds=2)
        elapsed = time.monotonic() - began
        assert 10 <= world.writes("chatty") <= 1 + DEFAULT.writes_burst + elapsed / DEFAULT.write_seconds
        assert world.vm("chatty")["status"]["domain"]["reason"] != "reason 239"
        await promptly(lambda: world.vm("chatty")["status"]["domain"]["reason"] == "reason 239", DEFAULT.write_seconds + PROMPT_SECONDS)
        await eventually(lambda: "because of 239" in str(world.vm("chatty")["status"]["conditions"]))


async def test_the_end_of_a_guest_waits_for_no_turn(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        chatty = await a_chatty_machine(world)
        await talk(world, chatty, rounds=240, seconds=1)
        chatty.end("shutdown", "it had enough")
        await promptly(lambda: world.vm("chatty")["status"]["phase"] == "Succeeded", PROMPT_SECONDS)
        chatty.exit()
    assert world.vm("chatty")["status"]["attempts"][0]["message"] == "it had enough"


async def test_talkative_launcher_is_disconnected_and_heard_later(tmp_path: Path) -> None:
    forgiving = Limits(links=limits.Limits(debt_bytes=limits.BUDGET_BYTES_PER_SECOND, exit_seconds=0.2))
    async with live(tmp_path, limits=forgiving) as world:
        chatty = await a_chatty_machine(world)
        hellos = chatty.hellos
        for number in range(4000):
            chatty.change(domain=state(number))
            if number % 1000 == 500:
                await world.healthy_machine_follows(PROMPT_SECONDS)
        await eventually(lambda: chatty.hellos > hellos)
        assert world.writes("chatty") <= 2 * DEFAULT.writes_burst
        chatty.end("crashed", "shouted itself hoarse")
        await eventually(lambda: world.vm("chatty")["status"]["phase"] == "Failed", 20)
        await world.healthy_machine_follows(PROMPT_SECONDS)


async def test_unanswering_launchers_delay_no_other_machine(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        for number in range(24):
            mute = await world.launcher(f"pod-mute-{number}")
            mute.mute = True
            await world.machine(f"mute-{number}", mute.pod_uid)
        await eventually(lambda: all(each.received for uid, each in world.launchers.items() if uid.startswith("pod-mute")))
        await world.healthy_machine_follows(PROMPT_SECONDS)
        await world.launcher("pod-late")
        await world.machine("late", "pod-late")
        await promptly(lambda: world.vm("late")["status"]["phase"] == "Running", PROMPT_SECONDS)


async def test_unanswered_call_reconnects_and_is_repeated(tmp_path: Path) -> None:
    async with live(tmp_path, limits=Limits(links=limits.Limits(start_seconds=0.3, exit_seconds=0.1))) as world:
        mute = await world.launcher("pod-mute")
        mute.mute = True
        await world.machine("mute", "pod-mute")
        await eventually(lambda: mute.hellos >= 2)
        mute.mute = False
        await eventually(lambda: world.vm("mute")["status"]["phase"] == "Running", 20)
        assert mute.starts == 1


class Garbage(FakeLauncher):
    def __init__(self, pod_uid: str, words: bytes) -> None:
        super().__init__(pod_uid)
        self.words = words
        self.sent = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hellos += 1
        try:
            while True:
                writer.write(self.words)
                await writer.drain()
                self.sent += len(self.words)
                await asyncio.sleep(0)
        except OSError:
            pass
        finally:
            writer.close()


def hello(**status: object) -> bytes:
    line = codec.encode(messages.Hello(messages.PROTOCOL, "x", messages.Status(1)))
    body = ",".join(f'"{key}":{value}' for key, value in status.items())
    return line.replace(b'"revision":1', f'"revision":1,{body}'.encode() if body else b'"revision":1')


def words() -> Iterator[tuple[str, bytes]]:
    interface = '{"name":"","mac":""}'
    yield "no JSON", b"\x00\xff\n" * 1000
    yield "nested lists", b"[" * 200_000 + b"\n"
    yield "nested objects", b'{"a":' * 100_000 + b"\n"
    yield "a line without an end", b"x" * (1 << 16)
    yield "huge numbers", b'{"type":"Hello","body":' + b"9" * 100_000 + b"}\n"
    yield "many interfaces", hello(interfaces=f"[{','.join([interface] * 20_000)}]")
    yield "another version", codec.encode(messages.Hello(99, "x" * 1000, messages.Status(1)))
    yield "hellos without end", hello()
    yield "answers to nobody", hello() + codec.encode(messages.Reply(7, messages.Status(2))) * 100
    yield "nothing but newlines", b"\n" * 50_000


@pytest.mark.parametrize("said", [each for _, each in words()], ids=[name for name, _ in words()])
async def test_words_that_are_none_cost_no_other_machine_anything(tmp_path: Path, said: bytes) -> None:
    async with live(tmp_path, limits=Limits(links=limits.Limits(hello_seconds=0.5))) as world:
        talkers = [await world.start(Garbage(f"pod-{number}-talker", said)) for number in range(3)]
        for each in talkers:
            await world.machine(each.pod_uid, each.pod_uid)
        await eventually(lambda: all(each.hellos for each in talkers))
        for _ in range(3):
            await world.healthy_machine_follows(PROMPT_SECONDS)
        assert sum(each.sent for each in talkers) < 3 * 2 * limits.DEFAULT.budget_bytes


async def test_launcher_that_lies_about_its_work_is_asked_rarely(tmp_path: Path) -> None:
    class Liar(FakeLauncher):
        def _carry_out(self, request: messages.Request) -> tuple[messages.RefusalReason, str] | None:
            self.status = replace(self.status, revision=self.status.revision + 1)
            return None

    async with live(tmp_path) as world:
        liar = await world.start(Liar("pod-liar"))
        await world.machine("liar", "pod-liar")
        await asyncio.sleep(1.5)
        await world.healthy_machine_follows(PROMPT_SECONDS)
        assert 1 <= len(liar.received) < 60
