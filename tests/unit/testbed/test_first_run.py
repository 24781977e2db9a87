from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.testbed import build, cloud_demo, compiling, demo, estimate, installing, layout, plugin, progress, ssh

GIB = 1 << 30


@pytest.mark.parametrize(
    ("available", "processors", "given", "limit"),
    [
        (20 * GIB, 2, {}, 6 * GIB),
        (4 * GIB, 2, {}, int(1.2 * GIB)),
        (3 * GIB, 2, {}, 0),  # less than a GiB each: Go's garbage collector keeps its default
        (20 * GIB, 64, {}, 0),
        (20 * GIB, 2, {"GOGC": "50"}, 0),
        (20 * GIB, 2, {"GOMEMLIMIT": "1GiB"}, 0),
        (0, 0, {}, 0),
    ],
)
def test_the_compiler_collects_no_garbage_where_memory_is_plenty(
    available: int, processors: int, given: dict[str, str], limit: int
) -> None:
    wanted = {"GOGC": "off", "GOMEMLIMIT": str(limit)} if limit else {}
    assert compiling.settings(available, processors, given) == wanted


def test_a_container_has_what_its_cgroup_leaves_it() -> None:
    meminfo = "MemTotal:       24576000 kB\nMemAvailable:   20971520 kB\n"
    assert compiling.available(meminfo, None) == 20 * GIB
    assert compiling.available(meminfo, ("max", "5")) == 20 * GIB
    assert compiling.available(meminfo, (str(4 * GIB), str(GIB))) == 3 * GIB
    assert compiling.available(meminfo, (str(GIB), str(2 * GIB))) == 0


def test_the_compiler_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "go"
    compiler.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program = build.PROGRAMS["pause"]
    assert isinstance(program, build.GoProgram)
    before = program.digest()

    program.make(tmp_path, {"GOGC": "off", "GOMEMLIMIT": "1"})

    assert {"GOGC=off", "GOMEMLIMIT=1"} <= set((tmp_path / "environment").read_text().splitlines())
    assert program.digest() == before  # build speed does not change the program


def test_etcd_is_built_without_the_tools_that_nothing_uses() -> None:
    etcd = build.PROGRAMS["etcd"]
    assert isinstance(etcd, build.GoProgram)
    assert etcd.packages == ("go.etcd.io/etcd/server/v3",)


def test_distribution_is_pinned_with_all_its_hashes() -> None:
    text = "other==1 \\\n    --hash=sha256:00\nuv==2 \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\nuvloop==3\n"
    assert installing.pinned("uv", text) == "uv==2 \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\n"
    with pytest.raises(progress.StepFailed, match="pins no absent"):
        installing.pinned("absent", text)


def test_uv_is_told_what_pip_is_configured_to() -> None:
    listed = ":env:.cert='/a.pem'\nglobal.index-url='https://mirror/simple'\nglobal.find-links='/wheels /more'\nglobal.cert='/b.pem'\n"
    assert installing.translated(listed, {}) == {
        "UV_DEFAULT_INDEX": "https://mirror/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/a.pem",
    }
    assert installing.translated("", {"PIP_INDEX_URL": "https://other", "UV_DEFAULT_INDEX": "https://chosen"}) == {}


def test_the_plugin_of_the_demo_runs_this_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEVIRT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))
    plugin.packages_path().mkdir(parents=True)

    text = plugin.program().read_text()

    assert text.splitlines()[0].endswith(" -I")
    assert str(layout.REPOSITORY) in text
    assert str(plugin.packages_path()) in text


Progress = estimate.Progress


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        (Progress(0, 0, 600), 600),
        (Progress(10, 30, 600), 600),  # not enough data
        (Progress(100, 200, 300), 600),  # half as fast
        (Progress(100, 50, 300), 150),
        (Progress(100, 100, 300, ((100, 0), (100, 90))), 300 + 100 + 10),
        (Progress(100, 100, 300, ((100, 100),)), 300 + 5),
        (Progress(100, 100, 0, ((100, 400),)), 5),  # nearly over
        (Progress(100, 10_000, 100), 800),
        (Progress(100, 1, 100), 25),
        (Progress(700, 600, 0), 0),
    ],
)
def test_estimate_follows_this_machines_speed(seen: estimate.Progress, seconds: float) -> None:
    assert estimate.left(seen) == pytest.approx(seconds)


def test_two_steps_side_by_side_share_the_machine() -> None:
    now = [0.0]
    course = estimate.Course({"long": 1000, "short": 100, "later": 100}, lambda: now[0])
    course.begin("long")
    course.begin("unexpected")
    course.begin("short")
    now[0] = 400.0

    course.end("short")  # it used 200 s of the machine, which is half as fast as the recorded one

    assert course.describe() == "about 34 min left"  # (1000 * 2 - 200) + 100 * 2 seconds
    now[0] = 1000.0
    assert course.describe() == "about 24 min left"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Progress(100, 100, 59), "under a minute left"),
        (Progress(100, 100, 60), "about 1 min left"),
        (Progress(100, 100, 61), "about 2 min left"),
        (Progress(10, 10, 600), "about 10 min left, if this machine is like the one of the records"),
    ],
)
def test_an_estimate_is_rounded_up_and_says_what_it_is_worth(seen: estimate.Progress, words: str) -> None:
    assert estimate.describe(seen) == words


def test_course_counts_expected_steps_once_from_the_start() -> None:
    now = 1000.0
    course = estimate.Course({"a": 100.0, "b": 100.0, "c": 300.0}, clock=lambda: now)
    assert course.describe() == "about 9 min left, if this machine is like the one of the records"  # 500 s

    course.begin("a")
    course.begin("unexpected")
    now += 60
    assert course.describe() == "about 8 min left, if this machine is like the one of the records"  # 40 s of a, and the others
    now += 140
    course.end("unexpected")
    course.end("a")
    course.end("a")
    assert course.describe() == "about 14 min left"  # half as fast: 800 s

    course.begin("b")
    now += 100
    assert course.describe() == "about 12 min left"  # 100 s of b, 600 s of c


def test_every_line_of_a_step_says_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path))
    with progress.expecting({"Build a": 100, "Build b": 400}):
        with progress.step("Build a"):
            pass
        with progress.step("unexpected"):
            pass
    with progress.step("Build b"):
        pass
    ended = [line for line in capsys.readouterr().err.splitlines() if "✓" in line]
    assert "min left)" in ended[0]
    assert "min left)" in ended[1]
    assert "left" not in ended[2]


def test_demo_expects_all_steps_only_for_an_empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEVIRT_CACHE", str(tmp_path))
    whole = demo._expected(own=True)
    assert whole[build.title("kubernetes")] == estimate.SECONDS["kubernetes"]
    assert sum(whole.values()) > 600

    build.directory_of("kubernetes").mkdir()
    plugin.packages_path().mkdir()

    assert set(whole) - set(demo._expected(own=True)) == {build.title("kubernetes"), plugin.TITLE, installing.TITLE}
    assert sum(demo._expected(own=False).values()) < 120


def test_demo_additions_are_selected_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEMO", raising=False)
    assert not cloud_demo.is_wanted()
    monkeypatch.setenv("DEMO", "cloud")
    assert cloud_demo.is_wanted()
    monkeypatch.setenv("DEMO", "clud")
    with pytest.raises(progress.StepFailed, match="DEMO=clud"):
        cloud_demo.is_wanted()


def test_demo_login_uses_its_own_key_which_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "of mine"))
    cloud_demo.key().parent.mkdir(parents=True)
    cloud_demo.key().write_text("made before")

    assert ssh.make_key(cloud_demo.key()).read_text() == "made before"
    (login,) = (line for line in cloud_demo.to_type().splitlines() if " -i " in line)
    words = shlex.split(login)
    assert words[words.index("-i") + 1] == str(tmp_path / "of mine" / "demo" / "id_ed25519")
    assert words[-1] == "debian@debian"
