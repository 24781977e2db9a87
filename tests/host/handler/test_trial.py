"""The trial guest in QEMU's emulation: KVM may not work here."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from handler.devices import acceleration, kvm, trial
from tests.given_time import Deadline

pytestmark = pytest.mark.host

# KVM_SET_SREGS does this on real hardware: from the reset vector into long mode with the guest's own tables.
BIOS = f"""
.code16
start:
    cli
    lgdtl %cs:gdt_pointer - start
    mov %cr0, %eax
    or $1, %eax
    mov %eax, %cr0
    ljmpl $8, $0xf0000 + protected - start
.code32
protected:
    mov $16, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov ${trial.STACK}, %esp
    mov $0x{0x40620:x}, %eax
    mov %eax, %cr4
    mov ${trial.PML4}, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx
    mov $0x100, %eax
    xor %edx, %edx
    wrmsr
    mov $0x80050033, %eax
    mov %eax, %cr0
    lgdtl 0xf0000 + guest_gdt - start
    lidtl 0xf0000 + guest_idt - start
    ljmpl ${trial.CODE_SELECTOR}, ${trial.CODE}
.balign 8
gdt:
    .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff
gdt_pointer:
    .word 23
    .long 0xf0000 + gdt - start
guest_gdt:
    .word {trial.GDT_LIMIT}
    .long {trial.GDT}
guest_idt:
    .word {trial.IDT_LIMIT}
    .long {trial.IDT}
.code16
.org 0xfff0
    ljmpw $0xf000, $0
.org 0xffff
    .byte 0
"""


def test_trial_guest_passes_all_stages_on_a_real_processor(tmp_path: Path) -> None:
    (tmp_path / "bios.s").write_text(BIOS)
    subprocess.run(["as", "--32", "-o", tmp_path / "bios.o", tmp_path / "bios.s"], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", tmp_path / "bios.o", tmp_path / "bios.bin"], check=True)
    (tmp_path / "memory").write_bytes(trial.memory()[: trial.STACK])
    output = tmp_path / "output"
    command = ["qemu-system-x86_64", "-machine", "pc,accel=tcg", "-cpu", "max", "-m", "16", "-display", "none", "-no-reboot", "-nodefaults"]
    command += ["-bios", str(tmp_path / "bios.bin"), "-device", f"loader,file={tmp_path}/memory,addr=0,force-raw=on"]
    command += ["-chardev", f"file,id=out,path={output}", "-device", f"isa-debugcon,iobase={trial.PORT},chardev=out"]
    with subprocess.Popen(command) as qemu:
        deadline = Deadline(20, lambda: (qemu.pid,))
        try:
            while not deadline.is_over and (not output.exists() or len(output.read_text()) < len(trial.STAGES)):
                time.sleep(0.05)
        finally:
            qemu.kill()

    assert output.read_text() == "".join(trial.STAGES)


async def test_verdict_matches_the_trials_output() -> None:
    report = subprocess.run([sys.executable, "-m", "handler.devices.kvm"], capture_output=True, text=True, timeout=30, check=True).stdout
    async with asyncio.timeout(acceleration.TRIAL_SECONDS + 5):
        verdict = await acceleration.decide("auto", acceleration.Trials())

    assert verdict.accelerated == acceleration.verdict_of(report, ended=True).accelerated
    assert verdict.reason
    if not Path(kvm.DEVICE).exists():
        assert not verdict.accelerated
