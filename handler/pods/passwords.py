"""Sends a password for a guest's user to its launcher, which stores it nowhere."""

from __future__ import annotations

from apiserver.apis.meta import errors
from apiserver.apis.virt.spec.password import Password
from handler.pods import reads
from handler.pods.launcher import Disconnected, LauncherRefused
from handler.pods.links import Links
from launcher.protocol import messages


async def send(links: Links, pod_uid: str, given: Password) -> None:
    """Have a pod's launcher set a guest user's password.

    Raises StatusError: BadRequest for an older launcher, ServiceUnavailable without an answer, else the error for its refusal.
    """
    connection = reads.connection_of(links.get(pod_uid))
    if not connection.knows(messages.SetPassword):
        raise errors.BadRequest("its virt-launcher is of an older version without setpassword; restart the machine")
    try:
        await connection.call(messages.SetPassword(given.user, given.password, given.encrypted))
    except LauncherRefused as refused:
        raise reads.error_of(refused) from refused
    except Disconnected as error:
        raise errors.ServiceUnavailable("its virt-launcher closed the connection; the password may have been set") from error
