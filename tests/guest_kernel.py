"""The command line of the test guest's kernel."""

from __future__ import annotations

KERNEL_ARGS = (
    "console=ttyS0 quiet panic=-1"
    " no_timer_check"  # an emulator with too little time looks like a broken timer to Linux, which then boots no further
    " cryptomgr.notests=1 initcall_blacklist=jent_mod_init,crypto_kdf108_init,load_system_certificate_list"
)
"""Of which the last two leave out tests of algorithms and certificates: an emulated Linux takes a fifth of its boot for them."""
