"""Times of a managed domain's parts, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Times:
    """Pauses and limits of the parts of a managed domain."""

    look: float = 10.0
    """Between two looks at the domain. Events tell of every change; this heals what an event that never came would leave."""
    console: float = 5.0
    """For QEMU's serial ports to be there; the guest starts without its console after it."""
    undo_retry: float = 0.5
    """Between two tries to destroy a domain whose start failed, while libvirtd is away."""
    relapse: float = 0.5
    """After a resume: a guest whose disk fails repeats the request that failed as soon as it runs."""

    stop: float = 0.5
    """Between two steps with a guest that has to power off."""
    press: float = 3.0
    """Between two presses: a guest that is still booting ignores the power button, so it is pressed again and again."""
    give_up: float = 8.0
    """After the deadline: then our exit takes QEMU with it, when libvirtd cannot even destroy."""
    release: float = 5.0
    """For the release of a domain that is complete in a target that has to end to begin: the source may be gone already."""

    progress: float = 0.5
    """Between two looks at how far an outgoing migration is."""
    memory_look: float = 0.25
    """Between two looks at the pod's memory meanwhile: QEMU may take a hundred MiB in a second."""
    settle: float = 0.1
    """Between two looks at a domain whose whereabouts libvirt has not settled yet."""

    agent_round: float = 30.0
    """Between two rounds of questions for the status, unless an agent connects or goes."""
    agent_pause: float = 1.0
    """The least between two rounds: a guest may open and close its channel as often as it likes."""
    agent_limit: float = 12.0
    """For all questions of one read; the last may take longer. virt-handler waits for twice as long."""
    agent_turn: float = 10.0
    """The longest that a read waits for the questions of another."""
    packages: float = 600.0
    """Between two runs of the guest's package manager."""
    packages_limit: float = 5.0
    """For the package manager to end. It is not ended by us: the agent cannot."""
    packages_look: float = 0.25
    """Between two looks at whether it has."""
    keys_look: float = 5.0
    """Between two looks at mounted public keys: the kubelet takes up to two minutes to change them."""
    keys_retry: float = 30.0
    """Between two tries to set them, after a failure."""

    servers_look: float = 5.0
    """Between two looks at the servers of disks."""
    space_look: float = 5.0
    """Between two looks at the free space of disks."""
    space_try: tuple[float, float] = (10.0, 300.0)
    """Between two tries to let a guest go on that had no space: after the first that failed, and at most."""
    import_retry: tuple[float, float] = (5.0, 300.0)
    """Before the next try of an import: after the first failure, doubled with each further one in a row, and the longest."""


TIMES: Final = Times()
"""Those of every pod."""
