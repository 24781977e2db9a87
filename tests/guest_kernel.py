from __future__ import annotations

KERNEL_ARGS = (
    "console=ttyS0 quiet panic=-1"
    " no_timer_check"  # to Linux a starved emulator is a broken timer, and it does not boot
    " cryptomgr.notests=1 initcall_blacklist=jent_mod_init,crypto_kdf108_init,load_system_certificate_list"
)
"""The last two disable self-tests, a fifth of an emulated boot."""
