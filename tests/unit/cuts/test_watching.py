from __future__ import annotations

from pathlib import Path

from tests.cuts.watching import SECTOR, SECTORS, Disk


def write(image: Path, number: int, boot: str = "7f186ffd") -> None:
    with image.open("r+b") as file:
        file.seek(number % SECTORS * SECTOR)
        file.write(f"{boot} {number}\n".encode())


def a_disk(path: Path) -> Path:
    image = path / "disk.img"
    with image.open("wb") as file:
        file.truncate(SECTORS * SECTOR)
    return image


def test_the_newest_number_is_found_as_it_grows(tmp_path: Path) -> None:
    image = a_disk(tmp_path)
    disk = Disk(image)
    assert disk.newest() == 0
    for number in range(1, 201):
        write(image, number)
    assert disk.newest() == 200
    write(image, 201)
    assert disk.newest() == 201
    assert disk.missing(1, 201) == []
    assert disk.boots(1, 201) == 1


def test_missing_number_hides_no_later_one(tmp_path: Path) -> None:
    image = a_disk(tmp_path)
    for number in (1, 2, 4):
        write(image, number)
    disk = Disk(image)
    assert disk.newest() == 4
    assert disk.missing(1, 4) == [3]


def test_numbers_go_round_and_older_ones_count_as_missing(tmp_path: Path) -> None:
    image = a_disk(tmp_path)
    disk = Disk(image)
    for number in range(1, SECTORS + 3):
        write(image, number, "7f186ffd" if number < SECTORS else "00aa11bb")
        if not number % 50:
            disk.newest()
    assert disk.newest() == SECTORS + 2
    assert disk.missing(SECTORS - 1, SECTORS + 2) == []
    assert disk.missing(1, 3) == [1, 2]
    assert disk.boots(SECTORS - 1, SECTORS + 2) == 2
