"""The sidecar that logs the first serial port: it copies virt-launcher's pipe to its output, and ends after virt-launcher.

Limits equal requests, so it changes no pod's QoS class.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import consoles as hardware
from apiserver.apis.virt.places import layout, names
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements, in_mebibytes

PIPE: Final = f"{layout.RUN_DIRECTORY}/{layout.CONSOLE_PIPE}"
COMMAND: Final = ("/bin/sh", "-c", f"until [ -p {PIPE} ]; do sleep 0.2; done; exec cat {PIPE}")
"""Also in the policy for virt-controller's pods."""
LOG_BYTES: Final = 128 * MIB
RESOURCES: Final = {"cpu": "20m", "memory": "32Mi", "ephemeral-storage": in_mebibytes(LOG_BYTES)}
"""0.3 MiB are used; runtimes need more to start a container."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the sidecar container that logs the console, if the machine has it."""
    del claims
    return Requirements(sidecars=(_CONTAINER,)) if hardware.is_logged(domain) else Requirements()


_CONTAINER: Final[Object] = {
    "name": names.CONSOLE_CONTAINER,
    "command": list(COMMAND),
    "restartPolicy": "Always",
    "resources": {"requests": RESOURCES, "limits": RESOURCES},
    "volumeMounts": [
        {"name": each.name, "mountPath": each.directory} for each in layout.IN_MEMORY if each.directory == layout.RUN_DIRECTORY
    ],
}
