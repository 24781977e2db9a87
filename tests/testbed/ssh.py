"""SSH to guests with our own keys, independent of the user's configuration."""

import pathlib

from tests.testbed import progress


def make_key(path: pathlib.Path) -> pathlib.Path:
    """Return ``path`` with a private key, made if missing.

    Raises:
        progress.StepFailed: ssh-keygen failed.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        progress.output_of(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)])
    return path


def public(key: pathlib.Path) -> pathlib.Path:
    return key.with_suffix(".pub")


def command(key: pathlib.Path, user: str, host: str, port: int = 22) -> list[str]:
    """Return a command that logs in, or runs appended words.

    It asks nothing, reads no configuration, and accepts any host key, because guests are new.
    """
    options = ("BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
    flags = [f"-o{option}" for option in (*options, "ConnectTimeout=120")]
    return ["ssh", "-F", "none", "-i", str(key), *flags, "-p", str(port), f"{user}@{host}"]
