from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher.sandbox import Launcher, a_machine
from tests.host.launcher.servers import Certificates, IscsiTarget, NbdServer
from tests.mounted import mount

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
MIB = 1 << 20
USER, PASSWORD = "initiator-7", "correct-horse-7"


def an_image(path: Path, content: bytes) -> Path:
    path.write_bytes(content.ljust(4 * MIB, b"\0"))
    return path


def mount_login(pod: Launcher, disk: str, password: str = PASSWORD) -> None:
    target = pod.sources / disk / "..now"
    target.mkdir(parents=True)
    for file, value in (("username", USER), ("password", password)):
        (target / file).write_text(value)
    (target.parent / "..data").symlink_to("..now")


def paused_by_a_fault(status: messages.Status) -> bool:
    return status.domain is not None and (status.domain.state, status.domain.reason) == ("paused", "I/O error")


def test_a_guest_reads_and_writes_disks_of_servers(start: Callable[[], Launcher], tmp_path: Path) -> None:
    written, kept = an_image(tmp_path / "written", b"from-the-server"), an_image(tmp_path / "kept", b"QFI\xfb-of-a-guest")
    units = [an_image(tmp_path / f"unit{each}", b"from-unit-%d" % each) for each in range(3)]
    certificates = Certificates()
    own = certificates.of_client()
    tls = certificates.tls(tmp_path / "tls", "nbd.example")
    with (
        NbdServer(written, "vm/disk-1") as server,
        NbdServer(kept, "", *tls) as other,
        IscsiTarget(*units, user=USER, password=PASSWORD) as target,
    ):
        unit = {"targetPortal": target.portal, "iqn": target.iqn, "lun": 2, "initiatorName": "iqn.2026-01.example:vm"}
        unit["secretRef"] = {"name": "chap"}
        disks = [
            {"name": "data", "type": "NBD", "source": {"host": "127.0.0.1", "port": server.port, "export": "vm/disk-1"}},
            {
                "name": "kept",
                "type": "NBD",
                "source": {"host": "localhost", "port": other.port, "tlsSecretRef": {"name": "tls"}, "tlsHostname": "nbd.example"},
                "readOnly": True,
                "target": {"bus": "scsi"},
            },
            {"name": "unit", "type": "ISCSI", "source": unit},
            {"name": "itself", "type": "ISCSI", "device": "lun", "source": {**unit, "lun": 3}},
        ]
        pod = start()
        mount_login(pod, "unit")
        mount_login(pod, "itself")
        mount(pod.nbd_secret, {"ca-cert.pem": certificates.authority, "client-cert.pem": own.certificate, "client-key.pem": own.key})
        with pod.client() as client, pod.console() as viewer:
            status = client.ask(messages.Sync(a_machine(devices={"disks": disks, "graphics": [], "interfaces": []})))
            assert status.not_migratable == ""
            viewer.expect("GUEST-READY", seconds=120)
            assert viewer.sh("head -c 15 /dev/vda; cat /sys/block/vda/size") == f"from-the-server{4 * MIB // 512}"
            found = viewer.sh("cd /sys/block; for each in sd*; do read vendor <$each/device/vendor; echo $each $vendor; done").split()
            assert {*found[1::2]} == {"QEMU", "IET"}  # answers to INQUIRY, in the guest's order
            kept_device, itself = (found[found.index(vendor) - 1] for vendor in ("QEMU", "IET"))
            assert viewer.sh(f"head -c 14 /dev/{kept_device} | tail -c 11; cat /sys/block/{kept_device}/ro") == "\ufffd-of-a-gues1"
            viewer.sh("echo written-by-guest | dd of=/dev/vda conv=fsync")
            with never_again("a lost write"):
                assert written.read_bytes().startswith(b"written-by-guest")

            assert viewer.sh("head -c 11 /dev/vdb; echo written-to-unit | dd of=/dev/vdb conv=fsync 2>/dev/null") == "from-unit-1"
            with never_again("a lost write"):
                assert units[1].read_bytes().startswith(b"written-to-unit")
            assert "Initiator: iqn.2026-01.example:vm " in target.initiators()

            assert viewer.sh(f"head -c 11 /dev/{itself}; echo to-itself | dd of=/dev/{itself} conv=fsync 2>/dev/null") == "from-unit-2"
            with never_again("a lost write"):
                assert units[2].read_bytes().startswith(b"to-itself")

            shown = client.read("domainxml")
            assert ('protocol="iscsi"' in shown, USER in shown, PASSWORD in shown) == (True, False, False)
            (qemu,) = pod.qemu()
            assert PASSWORD.encode() not in Path(f"/proc/{qemu}/cmdline").read_bytes()
            files = [each for each in (*pod.run_directory.rglob("*"), pod.log) if each.is_file()]
            assert [each for each in files if PASSWORD.encode() in each.read_bytes()] == []
            (key,) = (each for each in files if own.key.splitlines()[1] in each.read_bytes())
            assert (key, key.stat().st_mode & 0o777) == (pod.run_directory / "nbd-certificates/client-key.pem", 0o400)

            server.kill()
            viewer.type("echo written-meanwhile | dd of=/dev/vda conv=fsync; echo CO''PIED $?\n")
            domain = client.until(paused_by_a_fault, seconds=120).domain
            assert domain is not None
            assert domain.detail == "disk 'data': I/O error"
            client.until(lambda status: status.servers_silent == ("data",))
            server.start()
            assert viewer.expect("COPIED 0", seconds=120)
            with never_again("a lost write"):
                assert written.read_bytes().startswith(b"written-meanwhile")

            target.kill()
            viewer.type("echo to-unit-meanwhile | dd of=/dev/vdb conv=fsync; echo CO''PIED $?\n")
            client.until(lambda status: status.servers_silent == ("unit", "itself"))
            target.start()
            client.until(lambda status: status.servers_silent == ())
            assert viewer.expect("COPIED 0", seconds=120)
            with never_again("a lost write"):
                assert units[1].read_bytes().startswith(b"to-unit-meanwhile")


def test_a_server_that_does_not_have_the_export_is_named(start: Callable[[], Launcher], tmp_path: Path) -> None:
    with NbdServer(an_image(tmp_path / "image", b""), "there") as server:
        disk = {"name": "data", "type": "NBD", "source": {"host": "127.0.0.1", "port": server.port, "export": "elsewhere"}}
        pod = start()
        with pod.client() as client:
            answer = client.call(messages.Sync(a_machine(devices={"disks": [disk], "graphics": [], "interfaces": []})))
            assert isinstance(answer, messages.Refusal)
            assert (answer.reason, "elsewhere" in answer.message) == ("Failed", True), answer.message


def _wrong_authority(given: dict[str, bytes]) -> None:
    _anonymous(given)  # a certificate of its own would be reported first
    given["ca-cert.pem"] = Certificates().authority


def _old_authority(given: dict[str, bytes]) -> None:
    given["ca-cert.pem"] = Certificates(datetime.now(UTC) - timedelta(days=9)).authority


def _no_authority(given: dict[str, bytes]) -> None:
    given["ca-cert.pem"] = given["client-key.pem"]


def _other_key(given: dict[str, bytes]) -> None:
    given["client-key.pem"] = Certificates().of_client().key


def _stranger(given: dict[str, bytes]) -> None:
    pair = Certificates().of_client()
    given.update({"client-cert.pem": pair.certificate, "client-key.pem": pair.key})


def _anonymous(given: dict[str, bytes]) -> None:
    del given["client-cert.pem"], given["client-key.pem"]


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        (_wrong_authority, "nbd.example", "The certificate hasn't got a known issuer"),
        (_old_authority, "nbd.example", "The CA certificate ca.crt has expired"),
        (_no_authority, "nbd.example", "Unable to import CA certificate list ca.crt"),
        (_other_key, "nbd.example", "Cannot load certificate 'tls.crt' & key 'tls.key': The certificate and the given key do not match."),
        (
            _stranger,
            "nbd.example",
            "Our own certificate tls.crt failed validation against ca.crt: The certificate hasn't got a known issuer",
        ),
        (_anonymous, "nbd.example", "Failed to read option reply: Cannot read from TLS channel: Software caused connection abort"),
        (dict, "other.example", "Certificate does not match the hostname other.example"),
    ],
    ids=["wrong-authority", "old-authority", "no-authority", "other-key", "stranger", "anonymous", "wrong-name"],
)
def test_certificates_that_do_not_fit_are_told_before_the_start(
    start: Callable[[], Launcher], tmp_path: Path, change: Callable[[dict[str, bytes]], object], name: str, words: str
) -> None:
    certificates = Certificates()
    own = certificates.of_client()
    given = {"ca-cert.pem": certificates.authority, "client-cert.pem": own.certificate, "client-key.pem": own.key}
    change(given)
    with NbdServer(an_image(tmp_path / "image", b""), "a", *certificates.tls(tmp_path / "tls", "nbd.example")) as server:
        source = {"host": "127.0.0.1", "port": server.port, "export": "a", "tlsSecretRef": {"name": "tls"}, "tlsHostname": name}
        told = refused(start(), source, given)
    assert told == f"disk 'data': TLS with its server: {words}"


def test_a_server_without_tls_is_told_before_the_start(start: Callable[[], Launcher], tmp_path: Path) -> None:
    with NbdServer(an_image(tmp_path / "image", b""), "a") as server:
        source = {"host": "127.0.0.1", "port": server.port, "export": "a", "tlsSecretRef": {"name": "tls"}}
        told = refused(start(), source, {"ca-cert.pem": Certificates().authority})
    assert told == "disk 'data': TLS with its server: Denied by server for option 5 (starttls) server reported: TLS not configured"


def refused(pod: Launcher, source: dict[str, Any], given: dict[str, bytes]) -> str:
    mount(pod.nbd_secret, given)
    disk = {"name": "data", "type": "NBD", "source": source}
    with pod.client() as client:
        answer = client.call(messages.Sync(a_machine(devices={"disks": [disk], "graphics": [], "interfaces": []})))
        assert isinstance(answer, messages.Refusal)
        assert answer.reason == "Failed"
        return answer.message


def test_missing_server_is_named_and_the_pod_starts_later(start: Callable[[], Launcher], tmp_path: Path) -> None:
    server, target = NbdServer(an_image(tmp_path / "image", b"from-the-server")), IscsiTarget(an_image(tmp_path / "unit", b"from-the-unit"))
    disks = [
        {"name": "data", "type": "NBD", "source": {"host": "127.0.0.1", "port": server.port}},
        {"name": "unit", "type": "ISCSI", "source": {"targetPortal": target.portal, "iqn": target.iqn, "lun": 1}},
    ]
    request = messages.Sync(a_machine(devices={"disks": disks, "graphics": [], "interfaces": []}))
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        answer = client.call(request)
        assert isinstance(answer, messages.Refusal)
        assert (answer.reason, answer.disks, answer.status.ending) == ("NotReady", ("data", "unit"), None)
        with server:
            answer = client.call(request)
            assert isinstance(answer, messages.Refusal)
            assert (answer.reason, answer.disks, answer.message) == ("NotReady", ("unit",), "disk 'unit': its server does not answer")
            with target:
                client.ask(request)
                viewer.expect("GUEST-READY", seconds=120)
                assert viewer.sh("head -c 15 /dev/vda; head -c 13 /dev/vdb") == "from-the-serverfrom-the-unit"


@pytest.mark.parametrize(
    ("password", "words"),
    [("wrong-password-7", "Authentication failure"), ("p" * 256, "disk 'unit': its Secret: the password must have 1 to 255 bytes")],
    ids=["wrong", "long"],
)
def test_a_login_that_is_refused_says_so_and_nothing_of_itself(
    start: Callable[[], Launcher], tmp_path: Path, password: str, words: str
) -> None:
    with IscsiTarget(an_image(tmp_path / "unit", b""), user=USER, password=PASSWORD) as target:
        source = {"targetPortal": target.portal, "iqn": target.iqn, "lun": 1, "secretRef": {"name": "chap"}}
        pod = start()
        mount_login(pod, "unit", password)
        disks = [{"name": "unit", "type": "ISCSI", "source": source}]
        with pod.client() as client:
            answer = client.call(messages.Sync(a_machine(devices={"disks": disks, "graphics": [], "interfaces": []})))
            assert isinstance(answer, messages.Refusal)
            assert (answer.reason, words in answer.message) == ("Failed", True), answer.message
            told = repr(answer)
            assert (password in told, USER in told) == (False, False)
        assert pod.wait() == 1
        log = pod.log.read_text()
        assert (password in log, USER in log) == (False, False)
