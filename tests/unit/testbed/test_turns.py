import fcntl
import os
from pathlib import Path

import pytest

from tests.cluster import turns

TESTS = Path(turns.__file__).parent
TOGETHER, TOO, ALONE = TESTS / "test_claims.py", TESTS / "test_cloud.py", TESTS / "test_drain.py"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "lock"


def may(lock: Path, operation: int) -> bool:
    """Whether another process of tests would get the lock at once."""
    file = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


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


def test_modules_that_disturb_others_exist() -> None:
    assert {each.stem for each in TESTS.glob("test_*.py")} >= turns.ALONE


def test_what_is_done_one_at_a_time_is_let_go_at_its_end(lock: Path) -> None:
    with turns.one_at_a_time(lock):
        assert not may(lock, fcntl.LOCK_SH)
    assert may(lock, fcntl.LOCK_EX)
