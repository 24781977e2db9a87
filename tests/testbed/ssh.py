import pathlib

from tests.testbed import progress


def make_key(path: pathlib.Path) -> pathlib.Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        progress.output_of(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)])
    return path


def public(key: pathlib.Path) -> pathlib.Path:
    return key.with_suffix(".pub")
