"""virt-launcher's image of the previous release, for tests of upgrades.

There is no release yet, so a commit stands for one: the last one whose virt-launcher lacks ``PauseForMigration`` and the options of
``Migrate``. Its own ``image-context`` writes the files for its Containerfile, so only Debian's packages are of today. If today's image may
serve, the old source becomes a layer on it. A node gets the image by the digest in the chart's value ``image.digests``.
"""

import pathlib
import re
import subprocess
import tempfile

from tests.testbed import cluster, images, layout, nodes, oci, progress, project_images, source_layer

COMMIT = "9dd20759081315c1188a679c94d19d5cb86fca77"
LAUNCHER = "virt-launcher"
_REFERENCE = f"localhost/kubevirt/{LAUNCHER}-before:{COMMIT[:12]}"


def give_launcher() -> str:
    (image,) = images.ensure([launcher()])
    with cluster._alone():
        images.import_into_nodes([image])
        digest, _ = images._digests(image.archive)
        named = f"localhost/kubevirt/{LAUNCHER}@{digest}"
        for node in layout.NODES:
            progress.run(nodes.ctr(node, "images", "tag", "--force", "--local", "--skip-reference-check", image.reference, named))
    return digest


def launcher() -> images.Image:
    parts: list[str | bytes | pathlib.Path] = [COMMIT, project_images._base_digest(), pathlib.Path(__file__)]
    if not may_lie_on(_containerfile_before(), (layout.REPOSITORY / "images" / LAUNCHER / "Containerfile").read_text()):
        return images.Image(_REFERENCE, images.digest_of(parts), _build)
    today = project_images.below(next(process for process in project_images.PROCESSES if process.name == LAUNCHER))
    parts += [today.digest, pathlib.Path(source_layer.__file__), pathlib.Path(oci.__file__)]
    return images.Image(_REFERENCE, images.digest_of(parts), lambda archive: _lay(archive, today), today)


def may_lie_on(before: str, today: str) -> bool:
    """Return whether both Containerfiles run an image alike, and ``today`` has at least the packages of ``before``."""
    return _packages(before) <= _packages(today) and _configuration(before) == _configuration(today)


def _packages(containerfile: str) -> set[str]:
    found = re.search(r"^RUN .*install-packages\.sh ([^&]*)", containerfile.replace("\\\n", " "), re.MULTILINE)
    return set(found[1].split()) if found else set()


def _configuration(containerfile: str) -> set[str]:
    lines = [line for line in containerfile.splitlines() if line.startswith(("ENV ", "ENTRYPOINT ", "USER "))]
    users = [line for line in lines if line.startswith("USER ")]
    return {line for line in lines if line not in users} | set(users[-1:])


def _containerfile_before() -> str:
    _refuse_short_history(layout.REPOSITORY, COMMIT)
    return progress.output_of(["git", "-C", layout.REPOSITORY, "show", f"{COMMIT}:images/{LAUNCHER}/Containerfile"])


def _write_context(scratch: pathlib.Path) -> pathlib.Path:
    source, context = scratch / "source", scratch / "context"
    check_out(source)
    progress.run(["python3", "-m", "tests.testbed", "image-context", LAUNCHER, context], directory=source)
    return context


def _lay(archive: pathlib.Path, today: images.Image) -> None:
    with tempfile.TemporaryDirectory(prefix="image-before-", dir=layout.cache()) as scratch:
        source = _write_context(pathlib.Path(scratch)) / "source"
        source_layer.compile_source(source, project_images.base_archive() / "base.tar", [source])
        oci.write_over(archive, _REFERENCE, today.archive, oci.layer_of(source))


def _build(archive: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(prefix="image-before-", dir=layout.cache()) as scratch:
        context = _write_context(pathlib.Path(scratch))
        project_images._ensure_base()
        apt = project_images._apt_cache(f"{LAUNCHER}-before")
        project_images._buildah(
            "build", "--layers", "--quiet", "--tag", _REFERENCE, "--build-arg", f"BASE={project_images._BASE}", "--build-arg", "LOCKED=no",
            "--file", f"{context}/Containerfile",
            "--volume", f"{apt}/lists:/var/lib/apt/lists", "--volume", f"{apt}/archives:/var/cache/apt/archives", str(context),
        )  # fmt: skip
        new = archive.with_name(archive.name + ".new")
        new.unlink(missing_ok=True)
        form = ("--compression-format", "zstd", "--compression-level", "1")
        project_images._buildah("push", "--quiet", *form, _REFERENCE, f"oci-archive:{new}:{_REFERENCE}")
        new.replace(archive)


def check_out(target: pathlib.Path, repository: pathlib.Path = layout.REPOSITORY, commit: str = COMMIT) -> None:
    _refuse_short_history(repository, commit)
    target.mkdir(parents=True)
    archive = target.with_name("source.tar")
    progress.run(["git", "-C", repository, "archive", "--output", archive, commit])
    progress.run(["tar", "--extract", "--file", archive, "--directory", target])


def _refuse_short_history(repository: pathlib.Path, commit: str) -> None:
    command = ["git", "-C", str(repository), "cat-file", "-e", f"{commit}^{{commit}}"]
    known = subprocess.run(command, capture_output=True, text=True, check=False)
    if known.returncode:
        raise progress.StepFailed(
            f"the release before is built from commit {commit[:12]}, which {repository} does not have: it needs a clone with the whole "
            f"history (git fetch --unshallow). git said: {known.stderr.strip()}"
        )
