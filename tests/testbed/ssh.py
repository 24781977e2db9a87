"""SSH to guests: keys of our own, and the command line that uses nothing of the user's."""

import pathlib

from tests.testbed import progress


def make_key(path: pathlib.Path) -> pathlib.Path:
    """Return ``path`` with a private key in it, made unless it is there; the public key is beside it.

    Raises:
        progress.StepFailed: ssh-keygen failed.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        progress.output_of(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)])
    return path


def public(key: pathlib.Path) -> pathlib.Path:
    """Return the path of the public key of a private one."""
    return key.with_suffix(".pub")


def command(key: pathlib.Path, user: str, host: str, port: int = 22) -> list[str]:
    """Return a command line that logs in, or runs what is appended to it.

    No question is asked and no configuration read; guests are new, so the host's key is taken for what it is.
    """
    options = ("BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
    flags = [f"-o{option}" for option in (*options, "ConnectTimeout=120")]
    return ["ssh", "-F", "none", "-i", str(key), *flags, "-p", str(port), f"{user}@{host}"]
