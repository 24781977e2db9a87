import fcntl
import os
import re
import threading
from pathlib import Path

import pytest

from tests.cluster import conftest, turns

TESTS = Path(turns.__file__).parent
TOGETHER, TOO, ALONE = TESTS / "test_claims.py", TESTS / "test_cloud.py", TESTS / "test_drain.py"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "lock"


def may(lock: Path, operation: int) -> bool:
    file = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def waiting_for(lock: Path) -> int:
    inodes = [f":{path.stat().st_ino} " for path in (lock, lock.with_name(f"{lock.name}.next")) if path.exists()]
    lines = [line for line in Path("/proc/locks").read_text().splitlines() if "-> FLOCK" in line]
    return sum(any(inode in line for inode in inodes) for line in lines)


def test_most_modules_have_the_cluster_side_by_side(lock: Path) -> None:
    one, other = turns.Turn(lock), turns.Turn(lock)
    one.begin(TOGETHER)
    other.begin(TOO)
    one.begin(TOGETHER)
    assert may(lock, fcntl.LOCK_SH)
    assert not may(lock, fcntl.LOCK_EX)
    one.end()
    assert not may(lock, fcntl.LOCK_EX)
    other.end()
    assert may(lock, fcntl.LOCK_EX)


def test_a_module_that_disturbs_others_meets_none(lock: Path) -> None:
    turn = turns.Turn(lock)
    turn.begin(ALONE)
    assert not may(lock, fcntl.LOCK_SH)
    turn.begin(TOGETHER)
    assert may(lock, fcntl.LOCK_SH)
    assert not may(lock, fcntl.LOCK_EX)
    turn.end()
    turn.end()
    assert may(lock, fcntl.LOCK_EX)


def test_test_run_alone_meets_no_other_until_its_module_ends(lock: Path) -> None:
    one, other = turns.Turn(lock, alone=()), turns.Turn(lock, alone=())
    one.begin(ALONE)
    other.begin(TOO)
    assert may(lock, fcntl.LOCK_SH), "none of these is alone"
    other.end()
    with one.alone(ALONE):
        assert not may(lock, fcntl.LOCK_SH)
    one.begin(ALONE)
    assert not may(lock, fcntl.LOCK_SH)
    one.begin(TOO)
    assert may(lock, fcntl.LOCK_SH)


def test_second_run_of_a_cluster_test_meets_no_other(lock: Path, request: pytest.FixtureRequest) -> None:
    turn = turns.Turn(lock)
    with conftest.pytest_run_alone(request.node, turn):
        assert not may(lock, fcntl.LOCK_SH)
    turn.end()


def test_waiting_exclusive_turn_is_not_overtaken(lock: Path) -> None:
    first, waiting, late = turns.Turn(lock), turns.Turn(lock), turns.Turn(lock)
    first.begin(TOGETHER)
    order: list[str] = []

    def wait(turn: turns.Turn, module: Path) -> None:
        turn.begin(module)
        order.append(module.stem)
        turn.end()

    threads = [threading.Thread(target=wait, args=each) for each in ((waiting, ALONE), (late, TOO))]
    for count, thread in enumerate(threads, 1):
        thread.start()
        while waiting_for(lock) < count:
            pass
    assert order == []
    first.end()
    for thread in threads:
        thread.join()
    assert order == [ALONE.stem, TOO.stem]


def test_modules_that_disturb_others_exist() -> None:
    assert {each.stem for each in TESTS.glob("test_*.py")} >= turns.ALONE


def test_modules_that_kill_components_or_cordon_are_alone() -> None:
    disruptive = re.compile(r'\bkill_all\(|"(cordon|drain)"')
    assert {each.stem for each in TESTS.glob("test_*.py") if disruptive.search(each.read_text("utf-8"))} <= turns.ALONE


def test_lock_for_single_use_is_released_at_the_end(lock: Path) -> None:
    with turns.one_at_a_time(lock):
        assert not may(lock, fcntl.LOCK_SH)
    assert may(lock, fcntl.LOCK_EX)
