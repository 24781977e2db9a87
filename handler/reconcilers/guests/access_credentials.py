"""The condition ``AccessCredentialsSynchronized``: whether the guest agent set the public keys. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from apiserver.apis.meta import objects, times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.spec import access_credentials, running
from launcher.protocol import messages

MAX_PROBLEM: Final = 256


def with_propagation(vm: Object, status: Object, observed: messages.Status, now: datetime) -> Object:
    """Return the status with ``AccessCredentialsSynchronized`` if the guest agent sets the machine's keys, and the guest does not stop."""
    if not any(each.method == access_credentials.GUEST_AGENT for each in access_credentials.of(running.spec_of(vm))) or observed.stopping:
        return status
    found = {
        "synchronized": ("True", "Synchronized", ""),
        "failed": ("False", "Failed", one_line(observed.authorized_keys.message, MAX_PROBLEM)),
        "waiting": ("False", "WaitingForAgent", "the QEMU guest agent sets the public keys once it runs in the guest"),
    }
    state, reason, message = found[observed.authorized_keys.state]
    told = objects.new_condition(vm, conditions.ACCESS_CREDENTIALS, state, reason, message)
    return objects.with_status_condition(status, told, now=times.to_rfc3339(now))
