"""The cloud image, extracted from its container image and cached."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.testbed import caching, images, layout, project_images

INSIDE = "disk/disk.qcow2"
_PREFIX = "cloud-disk-"


def disk() -> Path:
    """Return the path of the disk in the current image ``debian``; guests must not write to it."""
    image = project_images.image_of("debian")

    def take(directory: Path) -> None:
        for older in layout.cache().glob(f"{_PREFIX}{'[0-9a-f]' * 12}"):
            shutil.rmtree(older)
        images.ensure([image])
        project_images.copy_out(image, INSIDE, directory / "disk.qcow2")

    return caching.once(layout.cache() / f"{_PREFIX}{image.digest}", "Take the cloud image's disk out of it", take) / "disk.qcow2"
