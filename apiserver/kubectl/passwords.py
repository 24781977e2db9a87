"""``kubectl virt set-password``: set the password of a user in the guest.

The password comes from the terminal or standard input, because a machine's other users can read the arguments of a command.
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


async def set_password(access: Access, name: str, user: str, *, encrypted: bool) -> None:
    """Ask for the password, and set it.

    Raises:
        Failure: refused or unanswered, or there is no password.
    """
    doing = f"set the password of {user} in virtual machine {access.namespace}/{name}"
    body = {"user": user, "password": _asked(user), "encrypted": encrypted}
    await verbs.request(access, "PUT", VIRTUAL_MACHINES.path(access.namespace, name, password.NAME), doing, body=body)
    print(f"virtualmachine.kubevirt.io/{name}: password of {user} set", flush=True)


def _asked(user: str) -> str:
    given = getpass.getpass(f"New password of {user}: ") if os.isatty(0) else sys.stdin.readline().rstrip("\n")
    if not given:
        raise Failure("error: no password: type it, or write it to standard input")
    return given
