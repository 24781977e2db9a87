from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.virt.places import deadlines
from handler.guardian import __main__ as guardian
from handler.guardian import options
from handler.guardian.deadline_file import DeadlineFile
from tests.fakes.kubeapi import FakeAPI
from tests.unit.handler.guardian.test_processes import OTHER, UID, a_process


async def test_a_refused_request_is_sent_once() -> None:
    """A second request could be carried out after the guardian forgot the promise."""
    api = FakeAPI()
    async with api.serving() as config, guardian.connection("a", config, 3.0) as client:
        api.refusals = [web.Response(status=429, headers={"Retry-After": "0"})]
        with pytest.raises(StatusError):
            await client.get(LEASES, "x", "ns")
        assert len(api.requests) == 1


@pytest.mark.parametrize(("flag", "promised"), [("--guests", {UID}), ("--no-guests", set[str]())])
def test_pods_whose_launcher_has_the_file_are_promised(tmp_path: Path, flag: str, promised: set[str]) -> None:
    proc, directory = tmp_path / "proc", tmp_path / "a"
    proc.mkdir()
    a_process(proc, 10, f"0::/pod{UID}/a\n")
    a_process(proc, 11, f"0::/pod{OTHER}/a\n")
    deadline = DeadlineFile(directory, "boot")
    (directory / deadlines.HOLDERS).write_text(f"{UID}\n00000000-0000-4000-8000-000000000001\n")
    given = options.parse(["--name=a", "--lease-namespace=ns", "--voters=a,b,c", f"--proc={proc}", flag])
    assert guardian.promised_pods(given, deadline) == promised


@pytest.mark.parametrize(
    ("flags", "more", "promises"), [("vmx", [], True), ("vmx hypervisor", [], False), ("hypervisor", ["--virtual-nodes"], True)]
)
def test_virtual_machines_promise_only_if_that_is_accepted(tmp_path: Path, flags: str, more: list[str], promises: bool) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    given = options.parse(["--name=a", "--lease-namespace=ns", "--voters=a,b,c", f"--proc={tmp_path}", *more])
    assert guardian.may_promise(given) is promises
