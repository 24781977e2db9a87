"""``DEMO=cloud make demo``: additionally the VM of ``examples/cloud-init.yaml``."""

import os
import pathlib
import shlex

from tests.testbed import cluster, console, estimate, images, kubectl, layout, packages, progress, project_images, ssh

MACHINE = "debian"
IMAGE = "debian"
_EXAMPLE = layout.REPOSITORY / "examples" / "cloud-init.yaml"
_SECRET = "my-keys"
_CREATE = f"Create the virtual machine of {_EXAMPLE.relative_to(layout.REPOSITORY)}, and a key to log in with"
_BOOT = "Wait until cloud-init has finished in the guest"
FINISHED = r"Cloud-init v\. \S+ finished at"
_BOOT_SECONDS = 900


def is_wanted() -> bool:
    asked = os.environ.get("DEMO", "")
    if asked not in ("", "cloud"):
        raise progress.StepFailed(f"DEMO={asked}: only `cloud` is known, or nothing")
    return bool(asked)


def expected(*, own: bool) -> dict[str, float]:
    recorded = estimate.SECONDS
    steps = {_CREATE: recorded["machine"], _BOOT: recorded["cloud-init"]}
    image = project_images.image_of(IMAGE)
    if own and not image.archive.exists():
        steps[images.title(image)] = recorded[IMAGE]
    return steps


def key() -> pathlib.Path:
    return layout.state() / "demo" / "id_ed25519"


def up(*, own: bool) -> None:
    if own:
        cluster.load_images([IMAGE])
    packages.install_for_login()
    with progress.step(_CREATE):
        public = ssh.public(ssh.make_key(key()))
        secret = kubectl.output("create", "secret", "generic", _SECRET, f"--from-file={public}", "--dry-run=client", "--output=yaml")
        kubectl.apply(secret)
        kubectl.run("apply", "--filename", str(_EXAMPLE))
        kubectl.run("wait", f"virtualmachine/{MACHINE}", "--for=condition=Ready", "--timeout=180s")
    with progress.step(_BOOT):
        console.wait_for(MACHINE, FINISHED, timeout_seconds=_BOOT_SECONDS)


def to_type() -> str:
    login = ("kubectl", "virt", "ssh", "-i", str(key()), "-o", "IdentitiesOnly=yes", f"debian@{MACHINE}")
    return f"""
  {shlex.join(login)}
  kubectl virt console {MACHINE}              # what it said at its first boot; nobody has a password there
"""


def down() -> None:
    kubectl.run("delete", "--ignore-not-found", "--timeout=120s", "--filename", str(_EXAMPLE))
    kubectl.run("delete", "--ignore-not-found", "--timeout=120s", f"secret/{_SECRET}")
