"""The tiny kernel of ``images/testguest/tiny`` in QEMU alone: each command, typed and as an argument."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.damage import never_again
from tests.host.tiny_qemu import MEBIBYTES, PROMPT, TinyQemu, running

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
MACHINES = pytest.mark.parametrize("machine", ["q35", "pc"])
PVPANIC = ("-device", "pvpanic")


@MACHINES
def test_guest_boots_to_its_prompt_and_answers(machine: str, tmp_path: Path) -> None:
    with running(tmp_path, "quiet guest.run=echo=begun panic=-1", ["-smp", "3"], machine=machine) as guest:
        assert guest.expect(PROMPT).split() == ["begun", "GUEST-READY", "#"]
        assert guest.ask("echo one two") == "one two"
        assert guest.ask("no-such-command now") == "no-such-command: not found"
        assert guest.ask("") == ""


def test_guest_counts_its_seconds(tmp_path: Path) -> None:
    with running(tmp_path, "guest.run=counter") as guest:
        counted = guest.expect(r"tick 3\n")
        assert re.findall(r"tick (\d+)\n", counted) == ["1", "2", "3"]
        assert re.search(r"^uptime=3 ", guest.ask("uptime"), re.MULTILINE)


def test_a_typed_counter_begins_with_1(tmp_path: Path) -> None:
    with running(tmp_path) as guest:
        guest.expect(PROMPT)
        guest.type("counter")
        assert re.findall(r"tick (\d+)\n", guest.expect(r"tick 2\n")) == ["1", "2"]


@MACHINES
def test_guest_powers_off_at_the_button(machine: str, tmp_path: Path) -> None:
    with running(tmp_path, machine=machine) as guest:
        guest.expect(PROMPT)
        guest.execute("system_powerdown")
        guest.expect("POWER-BUTTON\nPower down\n")
        assert guest.wait() == 0


@MACHINES
@pytest.mark.parametrize("typed", [True, False])
def test_guest_powers_itself_off(typed: bool, machine: str, tmp_path: Path) -> None:
    with running(tmp_path, "" if typed else "guest.run=poweroff", machine=machine) as guest:
        if typed:
            guest.expect(PROMPT)
            guest.type("poweroff")
        assert guest.wait() == 0


@pytest.mark.parametrize("typed", [True, False])
def test_a_deaf_one_sees_the_button_and_runs_on(typed: bool, tmp_path: Path) -> None:
    with running(tmp_path, "" if typed else "guest.run=echo=now,deaf") as guest:
        guest.expect(PROMPT)
        if typed:
            assert guest.ask("deaf") == ""
        guest.execute("system_powerdown")
        guest.expect("POWER-BUTTON\n")
        assert guest.ask("echo here") == "here"


def test_without_acpi_it_says_that_it_cannot_power_off(tmp_path: Path) -> None:
    with running(tmp_path, machine="pc,acpi=off") as guest:
        guest.expect(PROMPT)
        assert guest.ask("poweroff") == "no ACPI"


@MACHINES
def test_a_reboot_is_seen_in_the_id_of_the_boot(machine: str, tmp_path: Path) -> None:
    with running(tmp_path, machine=machine) as guest:
        guest.expect(PROMPT)
        before = guest.ask("uptime").split()[1]
        assert guest.ask("uptime").split()[1] == before
        guest.type("reboot")
        guest.expect("GUEST-READY\n# ")
        assert guest.ask("uptime").split()[1] != before


@pytest.mark.parametrize("typed", [True, False])
def test_a_panic_reaches_the_device(typed: bool, tmp_path: Path) -> None:
    with running(tmp_path, "" if typed else "guest.run=panic", PVPANIC) as guest:
        if typed:
            guest.expect(PROMPT)
            guest.type("panic")
        guest.expect("Kernel panic: ")
        guest.until_event("GUEST_PANICKED")


def test_a_panic_without_the_device_halts(tmp_path: Path) -> None:
    with running(tmp_path) as guest:
        guest.expect(PROMPT)
        guest.type("panic")
        guest.expect("Kernel panic: .*\n")
        guest.execute("system_powerdown")
        assert guest.execute("query-status")["status"] == "running"
        assert "GUEST_PANICKED" not in guest.events


@contextmanager
def with_open_memory(directory: Path, arguments: str) -> Iterator[tuple[TinyQemu, mmap.mmap]]:
    path = directory / "memory"
    size = MEBIBYTES + 1 << 20
    backend = f"memory-backend-file,id=ram,size={size},share=on,mem-path={path}"
    options = ["-object", backend, "-m", str(MEBIBYTES + 1), "-machine", "q35,memory-backend=ram"]
    with running(directory, arguments, options) as guest, path.open("r+b") as file, mmap.mmap(file.fileno(), size) as memory:
        yield guest, memory


@pytest.mark.parametrize("typed", [True, False])
def test_guest_detects_changes_in_its_filled_memory(typed: bool, tmp_path: Path) -> None:
    with with_open_memory(tmp_path, "" if typed else "guest.run=fill=16") as (guest, memory):
        booted = guest.expect(PROMPT)
        filled = guest.ask("fill 16") if typed else booted
        assert "filled 16" in filled
        assert guest.ask("check") == "intact 4096"
        assert len({memory[at : at + 4096] for at in range(2 << 20, 18 << 20, 4096)}) == 4096
        for _ in ("changed", "changed back"):
            memory[(9 << 20) + 8] ^= 1
            assert guest.ask("check") == "corrupt 900008"


@pytest.mark.parametrize("runs", [True, False])
def test_guest_detects_a_lost_write_of_dirty(runs: bool, tmp_path: Path) -> None:
    with with_open_memory(tmp_path, "guest.run=counter,fill=16,dirty=3000") as (guest, memory):
        guest.expect("tick 1\n")
        guest.ask("dirty 0")
        assert guest.ask("check").endswith("intact 4096")
        memory[9 << 20] ^= 1
        if runs:
            guest.ask("dirty 3000")
            guest.expect(r"tick \d+\n(.|\n)*tick \d+\n")  # it overwrites all pages
        assert guest.ask("check").endswith("corrupt 900000")


def test_guest_fills_only_its_own_memory(tmp_path: Path) -> None:
    with running(tmp_path) as guest:
        guest.expect(PROMPT)
        filled = int(guest.ask("fill 100000").removeprefix("filled "))
        assert MEBIBYTES - 4 <= filled < MEBIBYTES
        assert guest.ask("check") == f"intact {filled * 256}"


@pytest.mark.parametrize("typed", [True, False])
def test_guest_writes_the_given_pages_per_tick(typed: bool, tmp_path: Path) -> None:
    with running(tmp_path, "guest.run=counter" if typed else "guest.run=counter,dirty=10") as guest:
        guest.expect(PROMPT)
        if typed:
            guest.ask("dirty 10")
        guest.expect("tick 2\n")
        guest.ask("dirty 0")
        written = int(re.findall(r"intact (\d+)", guest.ask("check"))[0])
        seconds = int(re.findall(r"uptime=(\d+)", guest.ask("uptime"))[0])
        assert 10 * 20 < written <= 10 * 20 * (seconds + 1)
        assert written % 10 == 0
        assert guest.ask("check").endswith(f"intact {written}")


def test_guest_writes_cyclically_and_knows_its_writes(tmp_path: Path) -> None:
    with running(tmp_path, "guest.run=counter,dirty=3001") as guest:
        guest.expect("tick 2\n")
        pages = int(re.findall(r"intact (\d+)", guest.ask("check"))[0])
        assert (MEBIBYTES - 4) * 256 < pages < MEBIBYTES * 256
        guest.ask("dirty 0")
        assert "filled 8" in guest.ask("fill 8")
        guest.ask("dirty 501")
        guest.expect("tick 4\n")
        assert "intact 2048\n" in guest.ask("check") + "\n"


@pytest.mark.parametrize("typed", [True, False])
def test_guest_uses_the_processor_only_when_spinning(typed: bool, tmp_path: Path) -> None:
    with running(tmp_path, "guest.run=counter" if typed else "guest.run=counter,spin") as guest:
        guest.expect("tick 1\n")
        if typed:
            before = guest.processor_seconds()
            guest.expect("tick 3\n")
            assert guest.processor_seconds() - before < 0.2
            guest.ask("spin")
        before, used = guest.processor_seconds(), 0.0
        for _ in range(60):
            guest.expect(r"tick \d+\n")
            if (used := guest.processor_seconds() - before) > 0.5:
                break
        assert used > 0.5


def test_guest_spins_for_a_part_of_each_tick(tmp_path: Path) -> None:
    with running(tmp_path, "guest.run=counter,spin=1000") as guest:
        guest.expect("tick 1\n")
        before = guest.processor_seconds()
        guest.expect("tick 4\n")
        assert 0.1 < guest.processor_seconds() - before < 1.5


def test_a_migration_keeps_its_memory_and_its_count(tmp_path: Path) -> None:
    channel = f"unix:{tmp_path}/channel"
    with running(tmp_path, "guest.run=counter,fill=16,dirty=100") as source:
        source.expect("tick 2\n")
        boot = re.findall(r"boot=\w+", source.ask("uptime"))[0]
        with running(tmp_path, options=["-incoming", channel]) as target:
            source.execute("migrate-set-capabilities", capabilities=[{"capability": "events", "state": True}])
            source.execute("migrate", uri=channel)
            target.until_event("RESUME")
            counted = [int(number) for number in re.findall(r"tick (\d+)", target.expect(r"tick \d+\n(.|\n)*tick \d+\n"))]
            assert counted[0] in (3, 4)
            assert counted[1] == counted[0] + 1
            assert boot in target.ask("uptime")
            said = target.ask("check")
            with never_again("a lost write"):
                assert re.findall(r"(?:intact|corrupt) \w+", said) == ["intact 4096"]
