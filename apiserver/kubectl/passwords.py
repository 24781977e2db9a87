"""``kubectl virt set-password``: set a user's password in the guest.

It comes from the terminal or standard input, because other users can read a command's arguments.
"""

from __future__ import annotations

import getpass
import os
import sys

from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import password
from apiserver.kubectl import verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure


async def set_password(access: Access, name: str, given: password.Password, *, dry_run: bool = False) -> None:
    """Set a user's password in the guest; print a line.

    Raises:
        Failure: refused or unanswered.
    """
    doing = f"set the password of {given.user} in virtual machine {access.namespace}/{name}"
    body = {"user": given.user, "password": given.password, "encrypted": given.encrypted}
    params = {"dryRun": "All"} if dry_run else None
    await verbs.request(access, "PUT", VIRTUAL_MACHINES.path(access.namespace, name, password.NAME), doing, body=body, params=params)
    print(f"virtualmachine.kubevirt.io/{name}: password of {given.user} set{' (server dry run)' if dry_run else ''}", flush=True)


def asked(user: str) -> str:
    """Return the password that the user types, or standard input's first line. Raises Failure without one."""
    given = getpass.getpass(f"New password of {user}: ") if os.isatty(0) else sys.stdin.readline().rstrip("\n")
    if not given:
        raise Failure("error: no password: type it, or write it to standard input")
    return given
