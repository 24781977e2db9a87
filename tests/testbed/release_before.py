"""virt-launcher's image of the release before, for tests of upgrades: an earlier commit of this repository builds it.

There is no release yet, so a commit stands for one: the last one whose virt-launcher does not know ``PauseForMigration`` and the options
of ``Migrate``. Its own ``image-context`` writes what its Containerfile copies, so nothing of today is in the image but Debian's packages.
A node has it under the digest by which the chart's value ``image.digests`` names it.
"""

import pathlib
import subprocess
import tempfile

from tests.testbed import cluster, images, layout, nodes, progress, project_images

COMMIT = "9dd20759081315c1188a679c94d19d5cb86fca77"
LAUNCHER = "virt-launcher"
_REFERENCE = f"localhost/kubevirt/{LAUNCHER}-before:{COMMIT[:12]}"


def give_launcher() -> str:
    """Build the image, and give it to the nodes; return its digest, for ``image.digests.virt-launcher``.

    Raises:
        progress.StepFailed: the commit is not in this clone, a build failed, or the cluster does not run.
    """
    (image,) = images.ensure([launcher()])
    with cluster._alone():
        images.import_into_nodes([image])
        digest, _ = images._digests(image.archive)
        named = f"localhost/kubevirt/{LAUNCHER}@{digest}"
        for node in layout.NODES:
            progress.run(nodes.ctr(node, "images", "tag", "--force", "--local", "--skip-reference-check", image.reference, named))
    return digest


def launcher() -> images.Image:
    """Return the image; it need not have been built."""
    parts: list[str | bytes | pathlib.Path] = [COMMIT, project_images._base_digest(), pathlib.Path(__file__)]
    return images.Image(_REFERENCE, images.digest_of(parts), _build)


def _build(archive: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(prefix="image-before-", dir=layout.cache()) as scratch:
        source, context = pathlib.Path(scratch, "source"), pathlib.Path(scratch, "context")
        check_out(source)
        progress.run(["python3", "-m", "tests.testbed", "image-context", LAUNCHER, context], directory=source)
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
    """Write the source of a commit, that of the release before, into a new directory.

    Raises:
        progress.StepFailed: the commit is not in this clone.
    """
    command = ["git", "-C", str(repository), "cat-file", "-e", f"{commit}^{{commit}}"]
    known = subprocess.run(command, capture_output=True, text=True, check=False)
    if known.returncode:
        raise progress.StepFailed(
            f"the release before is built from commit {commit[:12]}, which {repository} does not have: it needs a clone with the whole "
            f"history (git fetch --unshallow). git said: {known.stderr.strip()}"
        )
    target.mkdir(parents=True)
    archive = target.with_name("source.tar")
    progress.run(["git", "-C", repository, "archive", "--output", archive, commit])
    progress.run(["tar", "--extract", "--file", archive, "--directory", target])
