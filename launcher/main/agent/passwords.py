"""Sets passwords of the guest's users through its agent. No message and no log line contains one."""

from __future__ import annotations

import base64
from typing import Final

from launcher.hypervisor.port import HypervisorError
from launcher.main.agent.agent import Agent
from launcher.main.decisions import requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages

COMMAND: Final = "guest-set-user-password"
REFUSED: Final = "the guest agent refused it"


async def set_password(agent: Agent, request: messages.SetPassword) -> None:
    """Set the password of a user in the guest. After RequestRefused, it may be set anyway."""
    encoded = base64.b64encode(request.password.encode()).decode()
    arguments = {"username": request.user, "password": encoded, "crypted": request.encrypted}
    try:
        await agent.do(COMMAND, arguments)
    except HypervisorError as error:
        refused = requests.refusal_of(error)
        if any(secret in str(error) for secret in (request.password, encoded)):
            raise RequestRefused(refused.reason, REFUSED) from None
        raise refused from error
