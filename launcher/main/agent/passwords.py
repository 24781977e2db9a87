"""Sets passwords of the guest's users through its agent. No message and no log line contains one."""

from __future__ import annotations

import base64
from typing import Final

from apiserver.apis.meta.lines import one_line
from launcher.hypervisor.port import AgentRefused, HypervisorError
from launcher.main.agent.agent import Agent
from launcher.main.decisions import requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages

COMMAND: Final = "guest-set-user-password"
REFUSED: Final = "the guest agent refused it"
NOT_SHOWN: Final = "its reason is not shown, because it contains the password"
MAX_REASON: Final = 300
_BEFORE_REASON: Final = f"{COMMAND}': "
"""The end of libvirt's words before the agent's own."""
_OF_AGENT: Final = (
    "child process has failed to set user password",
    f"The command {COMMAND} has been disabled for this instance",
    f"Command {COMMAND} has been disabled",
    f"The command {COMMAND} has not been found",
)
"""Texts of qemu-ga that quote nothing: safe for every password, such as ``pass``."""


async def set_password(agent: Agent, request: messages.SetPassword) -> None:
    """Set the password of a user in the guest. Raises RequestRefused; the password may be set anyway."""
    encoded = base64.b64encode(request.password.encode()).decode()
    arguments = {"username": request.user, "password": encoded, "crypted": request.encrypted}
    try:
        await agent.do(COMMAND, arguments)
    except HypervisorError as error:
        refused, secrets = requests.refusal_of(error), (request.password, encoded)
        if isinstance(error, AgentRefused):
            raise RequestRefused(refused.reason, refusal(str(error), request.user, secrets)) from None
        if any(secret in str(error) for secret in secrets):
            raise RequestRefused(refused.reason, REFUSED) from None
        raise refused from error


def refusal(text: str, user: str, secrets: tuple[str, ...]) -> str:
    """Return the message for the agent's refusal: libvirt's ``text``, hidden if it contains ``secrets``, and what to check in the guest."""
    _, quoted, rest = text.partition(_BEFORE_REASON)
    reason = rest if quoted else text
    known = next((each for each in _OF_AGENT if reason.startswith(each)), "")
    shown = one_line(reason, MAX_REASON)
    if any(secret in each for secret in secrets for each in (reason.removeprefix(known), shown.removeprefix(known))):
        shown = f"{known}: {NOT_SHOWN}" if known else NOT_SHOWN
    return f"{REFUSED}: {shown}; check in the guest that user {user} exists, and that qemu-ga's configuration allows {COMMAND}"
