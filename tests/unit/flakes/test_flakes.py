from __future__ import annotations

from pathlib import Path

import pytest

from tests.flakes import Flake, failures, guest_seconds, listed, pressure
from tests.given_time import Look

pytest_plugins = ["pytester"]

INI = """
    [pytest]
    addopts = -p tests.flakes -p no:schemathesis -p no:anyio
    asyncio_default_fixture_loop_scope = function
    timeout = 60
    markers =
        cluster: …
        host: …
"""
CONFTEST = """
    import contextlib, pathlib, pytest

    LOG = pathlib.Path(__file__).parent / "log"

    def log(word):
        with LOG.open("a") as file:
            file.write(word + "\\n")

    @contextlib.contextmanager
    def alone():
        log("alone")
        yield

    def pytest_run_alone(item):
        return alone()

    @pytest.fixture(scope="session")
    def cluster():
        log("cluster")

    @pytest.fixture(scope="module")
    def namespace(cluster):
        log("namespace")
        yield
        log("end")

    @pytest.fixture
    def fails_first(request):
        def look():
            log(request.node.name)
            return LOG.read_text().split().count(request.node.name) > 1
        return look
"""
SUITE = """
    import pytest
    pytestmark = pytest.mark.cluster

    def test_before(namespace):
        pass

    def test_flaky(namespace, fails_first):
        assert fails_first(), "the first run"

    def test_after(namespace):
        pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini(INI)
    pytester.makeconftest(CONFTEST)
    return pytester


def log(suite: pytest.Pytester) -> list[str]:
    return (suite.path / "log").read_text().split()


def ledger(suite: pytest.Pytester, test: str) -> None:
    suite.mkdir("tests")
    (suite.path / "tests/flakes.toml").write_text(f'[[flake]]\ntest = "{test}"\ndate = 2026-11-28\ncause = "…"\n')


def test_a_test_that_fails_once_has_flaked_and_the_run_succeeds(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_it=SUITE)
    result = suite.runpytest_inprocess("-q", "--once-more")
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*flaked tests*", "FLAKED test_it.py::test_flaky: CPU pressure * %, guests had * s; build/flaked/test_it.py_test_flaky.txt"]
    )
    result.stdout.fnmatch_lines(["*2 passed, 1 flaked*"])
    text = (suite.path / "build/flaked/test_it.py_test_flaky.txt").read_text()
    assert "AssertionError: the first run" in text
    assert "CPU pressure" in text


def test_retry_runs_alone_in_a_new_namespace_for_later_tests_too(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_it=SUITE)
    suite.runpytest_inprocess("--once-more")
    assert log(suite) == ["cluster", "namespace", "test_flaky", "end", "alone", "namespace", "test_flaky", "end"]


def test_a_fixture_that_fails_once_flakes_too(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from conftest import LOG, log
        pytestmark = pytest.mark.host

        @pytest.fixture(scope="module")
        def fragile():
            log("fragile")
            assert LOG.read_text().split().count("fragile") > 1

        def test_a(fragile):
            pass

        def test_b(fragile):
            pass
        """
    )
    result = suite.runpytest_inprocess("--once-more")
    assert (result.ret, result.parseoutcomes()) == (0, {"passed": 1, "flaked": 1})
    assert log(suite) == ["fragile", "alone", "fragile"]


def test_a_test_that_fails_twice_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile("import pytest\n@pytest.mark.cluster\ndef test_it(fails_first):\n    assert fails_first() is None")
    result = suite.runpytest_inprocess("--once-more")
    assert (result.ret, result.parseoutcomes()) == (1, {"failed": 1})
    assert log(suite) == ["test_it", "alone", "test_it"]
    result.stdout.fnmatch_lines(["*failed twice*", "*::test_it: *build/flaked/*"])


def test_test_that_fails_and_then_is_skipped_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        @pytest.mark.cluster
        def test_it(fails_first):
            if fails_first():
                pytest.skip("what the first run left is in the way")
            assert False
        """
    )
    result = suite.runpytest_inprocess("--once-more")
    assert (result.ret, result.parseoutcomes()) == (1, {"failed": 1})
    result.stdout.fnmatch_lines(["*skipped at the second run*"])


@pytest.mark.parametrize("mark", ["", "@pytest.mark.cluster\n"], ids=["a unit test", "without the option"])
def test_other_tests_and_other_runs_have_no_second_one(suite: pytest.Pytester, mark: str) -> None:
    suite.makepyfile(f"import pytest\n{mark}def test_it(fails_first):\n    assert fails_first()")
    result = suite.runpytest_inprocess(*([] if mark else ["--once-more"]))
    assert (result.ret, log(suite)) == (1, ["test_it"])


@pytest.mark.parametrize(("old", "new"), [("def pytest_run_alone", "def run_alone"), ("return alone()", "return None")])
def test_test_is_not_retried_if_its_conftest_cannot_isolate_it(suite: pytest.Pytester, old: str, new: str) -> None:
    suite.makeconftest(CONFTEST.replace(old, new))
    suite.makepyfile("import pytest\n@pytest.mark.host\ndef test_it(fails_first):\n    assert fails_first()")
    assert (suite.runpytest_inprocess("--once-more").ret, log(suite)) == (1, ["test_it"])


def test_damage_is_never_run_again(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from tests.damage import never_again

        @pytest.mark.cluster
        def test_it(fails_first):
            with never_again("two QEMU"):
                assert fails_first()
        """
    )
    result = suite.runpytest_inprocess("--once-more")
    assert (result.ret, log(suite)) == (1, ["test_it"])
    result.stdout.fnmatch_lines(["*not run again*", "the test saw two QEMU"])


def test_damage_is_known_after_a_failed_teardown(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from tests.damage import never_again

        @pytest.fixture
        def own(namespace):
            yield
            raise OSError("own")

        @pytest.mark.cluster
        def test_it(own, fails_first):
            with never_again("two QEMU"):
                assert fails_first()
        """
    )
    result = suite.runpytest_inprocess("--once-more")
    assert (result.ret, log(suite).count("alone")) == (1, 0)
    result.stdout.fnmatch_lines(["the test saw two QEMU"])


def test_a_run_fails_for_a_flake_that_the_ledger_has(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_it=SUITE)
    ledger(suite, "test_it.py::test_after")
    assert suite.runpytest_inprocess("--once-more").ret == 0
    (suite.path / "log").unlink()
    (suite.path / "tests/flakes.toml").write_text('[[flake]]\ntest = "test_it.py::test_flaky"\n')
    result = suite.runpytest_inprocess("--once-more")
    assert (result.ret, result.parseoutcomes()) == (1, {"passed": 2, "flaked": 1})
    result.stdout.fnmatch_lines(["test_it.py::test_flaky flaked, and tests/flakes.toml lists it already"])


def test_a_host_test_of_any_directory_can_be_run_again(request: pytest.FixtureRequest) -> None:
    item = request.node
    assert item.ihook.pytest_run_alone(item=item) is None
    item.add_marker(pytest.mark.host)
    assert item.ihook.pytest_run_alone(item=item) is not None


@pytest.mark.slow
@pytest.mark.parametrize(("count", "code", "flags"), [(2, 0, []), (3, 1, ["-n2"])], ids=["two", "three, in two processes"])
def test_a_run_fails_if_more_than_two_tests_flaked(suite: pytest.Pytester, count: int, code: int, flags: list[str]) -> None:
    suite.makepyfile(
        f"""
        import pytest

        @pytest.mark.cluster
        @pytest.mark.parametrize("number", range({count}))
        def test_it(fails_first, number):
            assert fails_first()
        """
    )
    run = suite.runpytest_subprocess if flags else suite.runpytest_inprocess
    result = run(*flags, "--once-more")
    assert (result.ret, result.parseoutcomes()) == (code, {"flaked": count})
    assert any("more than 2" in line for line in result.outlines) is bool(code)


def test_failing_teardown_is_an_error_without_a_retry(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="module")
        def stubborn():
            yield
            raise OSError("it is there still")

        @pytest.mark.cluster
        def test_it(stubborn, fails_first):
            assert fails_first()

        def test_after():
            pass
        """
    )
    result = suite.runpytest_inprocess("--once-more")
    assert (result.ret, result.parseoutcomes()) == (1, {"failed": 1, "errors": 1, "passed": 1})
    assert log(suite) == ["test_it"]
    result.stdout.fnmatch_lines(["*it is there still*"])


@pytest.mark.parametrize(
    "scope", ["scope='module'", "scope='session', autouse=True", "scope='module', params=[1, 2]"], ids=["module", "session", "parameters"]
)
def test_failed_teardown_of_a_wider_fixture_fails_the_run(suite: pytest.Pytester, scope: str) -> None:
    suite.makepyfile(
        f"""
        import pytest
        from conftest import log

        @pytest.fixture({scope})
        def stubborn():
            yield
            log("end")
            raise OSError("it is there still")

        @pytest.mark.cluster
        def test_it(stubborn):
            pass
        """
    )
    result = suite.runpytest_inprocess("--once-more")
    assert result.ret == 1
    assert "flaked" not in result.parseoutcomes()
    assert "alone" not in log(suite)
    result.stdout.fnmatch_lines(["*not run again*", "the teardown of stubborn failed: *"])


def test_failed_teardown_of_the_tests_own_fixture_flakes(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture
        def own(namespace, fails_first):
            yield
            assert fails_first()

        @pytest.mark.cluster
        def test_it(own):
            pass
        """
    )
    result = suite.runpytest_inprocess("--once-more")
    assert (result.ret, result.parseoutcomes(), log(suite).count("alone")) == (0, {"flaked": 1}, 1)


def test_no_retry_if_own_and_wider_teardown_failed(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="module")
        def wide():
            yield
            raise OSError("wide")

        @pytest.fixture
        def own(wide):
            yield
            raise OSError("own")

        @pytest.mark.cluster
        def test_it(own):
            pass
        """
    )
    result = suite.runpytest_inprocess("--once-more")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["the teardown of wide failed: *"])


@pytest.mark.slow
def test_the_second_run_has_its_whole_time_and_what_hangs_ends(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import time
        import pytest
        import tests.flakes

        @pytest.fixture
        def limit(request):
            return request.node.get_closest_marker("timeout").args[0]

        @pytest.mark.host
        def test_least(limit):
            assert limit == tests.flakes.LAST_RESORT_SECONDS

        @pytest.mark.host
        @pytest.mark.timeout(2000)
        def test_longer(limit):
            assert limit == 2000

        @pytest.mark.host
        def test_hangs(fails_first):
            if not fails_first():
                time.sleep(60)
            time.sleep(0.7)
        """
    )
    suite.makeconftest(CONFTEST + "\n    import tests.flakes\n    tests.flakes.LAST_RESORT_SECONDS = 1.0\n")
    result = suite.runpytest_subprocess("--once-more")
    assert (result.ret, result.parseoutcomes()) == (0, {"passed": 2, "flaked": 1})
    assert (
        "Timeout (>1.0s)"
        in (suite.path / "build/flaked/test_the_second_run_has_its_whole_time_and_what_hangs_ends.py_test_hangs.txt").read_text()
    )


def test_known_and_too_many_flakes_fail_a_run() -> None:
    flakes = [Flake(name, 0, 0.0, "") for name in "abc"]
    assert failures(flakes[:2], ["c"]) == []
    assert failures(flakes[:1], ["a"]) == ["a flaked, and tests/flakes.toml lists it already"]
    assert failures([Flake("t[a]", 0, 0.0, "")], ["t[b]"]) == failures([Flake("t[a]", 0, 0.0, "")], ["t"]) != []
    assert failures([Flake("t[a]", 0, 0.0, "")], ["tt", "[a]"]) == []
    assert failures(flakes, []) == ["3 tests flaked, more than 2"]


def test_the_ledger_is_read_and_may_be_absent(tmp_path: Path) -> None:
    assert listed(tmp_path / "none") == []
    (tmp_path / "empty").write_text("# none\n")
    assert listed(tmp_path / "empty") == []


def test_pressure_and_guests_are_those_of_the_time_of_the_test() -> None:
    assert pressure(Look(10.0, 5.0), Look(20.0, 9.0)) == 40
    assert guest_seconds({1: 5.0, 2: 3.0}, {1: 7.5, 3: 1.0}) == 3.5
