"""Translation of libvirt's errors into ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

import libvirt

from launcher.domain.network_disks import without_users
from launcher.hypervisor import port

_UNAVAILABLE: Final = frozenset(
    {libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_INVALID_CONN, libvirt.VIR_ERR_RPC, libvirt.VIR_ERR_AUTH_FAILED}
)
_BY_CODE: Final[dict[int, type[port.HypervisorError]]] = {
    libvirt.VIR_ERR_NO_DOMAIN: port.DomainNotFound,
    libvirt.VIR_ERR_DOM_EXIST: port.DomainExists,
    libvirt.VIR_ERR_OPERATION_INVALID: port.OperationInvalid,
    libvirt.VIR_ERR_AGENT_UNRESPONSIVE: port.AgentUnresponsive,
    libvirt.VIR_ERR_AGENT_UNSYNCED: port.AgentUnresponsive,
    libvirt.VIR_ERR_NO_SUPPORT: port.OperationInvalid,
    libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED: port.OperationInvalid,
    libvirt.VIR_ERR_OPERATION_TIMEOUT: port.OperationTimeout,
    libvirt.VIR_ERR_OPERATION_ABORTED: port.MigrationAborted,
}
_SINCE_11: Final[Mapping[str, type[port.HypervisorError]]] = {
    "VIR_ERR_AGENT_COMMAND_TIMEOUT": port.AgentUnresponsive,
    "VIR_ERR_AGENT_COMMAND_FAILED": port.AgentRefused,
}
"""Before libvirt 11.2 a command timeout has the code of an unresponsive agent, and a failed command that of an internal error."""
_BY_CODE.update({getattr(libvirt, name): kind for name, kind in _SINCE_11.items() if hasattr(libvirt, name)})
MAX_MESSAGE: Final = 2000
_NO_SLOT: Final = "No more available PCI slots"


@contextlib.contextmanager
def errors(doing: str) -> Iterator[None]:
    """Translate libvirt's errors in the ``with`` block to those of ``port``, with ``doing`` as prefix of the message."""
    try:
        yield
    except libvirt.libvirtError as error:
        message = f"{doing}: {without_users(_words(error))}"[:MAX_MESSAGE]
        raise kind_of(error)(message) from error


def _words(error: libvirt.libvirtError) -> str:
    """Return libvirt's message, with advice if no slot is free; of a violated schema (``spec.domainXML``), only the useful part."""
    text = str(error.get_error_message() or error)
    if _NO_SLOT in text:
        return f"{text}: detach another device, give the disk bus scsi, or restart the virtual machine"
    if error.get_error_code() != libvirt.VIR_ERR_XML_INVALID_SCHEMA:
        return text
    found = "; ".join(each for each in text.splitlines()[1:] if each)
    return f"domainXML: /domain: libvirt's schema does not allow it: {found or text}"


def kind_of(error: libvirt.libvirtError) -> type[port.HypervisorError]:
    """Return our exception class for libvirt's error."""
    code = error.get_error_code()
    if code in _UNAVAILABLE:
        return port.Unavailable
    if error.get_error_domain() in (libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE) and code in (
        libvirt.VIR_ERR_INTERNAL_ERROR,
        libvirt.VIR_ERR_SYSTEM_ERROR,
    ):
        return port.Unavailable  # "client socket is closed", broken pipe, connection refused
    return _BY_CODE.get(code, port.HypervisorError)
