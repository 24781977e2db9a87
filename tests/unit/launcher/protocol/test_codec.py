from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.virt.spec import live_changes
from launcher.protocol import codec, messages, reading
from launcher.protocol.codec import MAX_LINE_BYTES, MAX_REPLY_BYTES, encode
from launcher.protocol.reading import MAX_ITEMS, ProtocolError

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
integers = st.integers(0, reading.MAX_INTEGER)
seconds = st.floats(0, 1e9)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
)
json_objects = st.dictionaries(text, json_values, max_size=4)

interfaces = st.builds(messages.Interface, text, text, text, text)
machines = st.builds(
    messages.Machine, text, text, text, json_objects, interfaces=st.lists(interfaces, max_size=2).map(tuple), grace_seconds=seconds
)
statuses = st.builds(
    messages.Status,
    integers,
    domain=st.none() | st.builds(messages.DomainStatus, text, text, reason=text),
    ending=st.none() | st.builds(messages.Ending, message=text, migration_uid=text, log=st.lists(text).map(tuple), time=seconds),
    interfaces=st.lists(st.builds(messages.InterfaceStatus, text, text, text, st.lists(text, max_size=3).map(tuple)), max_size=3).map(
        tuple
    ),
    agent=st.builds(messages.AgentStatus, hostname=text, os_id=text),
    migrations=st.lists(st.builds(messages.MigrationStatus, text, message=text, iteration=integers, start_time=seconds), max_size=4).map(
        tuple
    ),
    operations=st.lists(st.builds(messages.OperationStatus, text, integers, message=text), max_size=3).map(tuple),
    imports=st.lists(st.builds(messages.ImportStatus, text, transferred_bytes=integers, message=text), max_size=3).map(tuple),
    not_migratable=text,
)
requests = st.one_of(
    st.builds(messages.Import, machines),
    st.builds(messages.Sync, machines),
    st.builds(messages.Shutdown, seconds),
    st.just(messages.Suspend()),
    st.just(messages.Resume()),
    st.builds(messages.Operate, text, integers),
    st.builds(messages.SetPassword, text, text, st.booleans()),
    st.builds(messages.Execute, st.lists(text, max_size=3).map(tuple), integers),
    st.builds(messages.Change, st.sampled_from(live_changes.KNOWN), text, st.just({"name": "data", "ioTune": {"totalIopsSec": 1}})),
    st.builds(messages.AttachDisk, st.just({"name": "data", "target": {"bus": "scsi"}})),
    st.builds(messages.DetachDisk, text),
    st.builds(messages.AttachInterface, st.just({"name": "lan", "type": "bridge"}), st.builds(messages.Interface, text, text, text)),
    st.builds(messages.DetachInterface, text),
    st.builds(messages.PrepareMigrationTarget, text, machines, st.booleans()),
    st.builds(messages.Migrate, text, integers, integers, integers, st.booleans(), st.booleans()),
    st.builds(messages.PauseForMigration, text),
    st.builds(messages.AbortMigration, text),
    st.builds(messages.ReleaseMigration, text, st.booleans()),
    st.builds(messages.Read, text),
)
calls = st.builds(messages.Call, integers, requests)
names = st.lists(text, max_size=3).map(tuple)
answers = st.one_of(
    st.builds(messages.Hello, st.sampled_from(sorted(messages.SPOKEN)), text, statuses, names, names, names),
    st.builds(messages.Content, integers, text),
    st.builds(messages.StatusChanged, statuses),
    st.builds(messages.Reply, integers, statuses),
    st.builds(messages.Refusal, integers, message=text, status=statuses),
)
CALL = messages.Call(1, messages.Sync(messages.Machine("default", "testvm", "u-1", {"memory": {"guest": "128Mi"}}, "qemu")))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def with_body(**changes: Any) -> bytes:
    document = json.loads(encode(CALL))
    document["body"]["machine"] |= changes
    return json.dumps(document).encode() + b"\n"


@given(st.lists(calls, max_size=4), st.lists(st.integers(0, 1 << 16), max_size=8))
def test_calls_survive_any_chunking(sent: list[messages.Call], cuts: list[int]) -> None:
    receiver = codec.requests()
    received = [message for piece in pieces(b"".join(map(encode, sent)), cuts) for message in receiver.receive(piece)]
    receiver.close()
    assert received == sent


@given(st.lists(answers, max_size=4), st.lists(st.integers(0, 1 << 16), max_size=8))
def test_answers_survive_any_chunking(sent: list[messages.FromLauncher], cuts: list[int]) -> None:
    receiver = codec.replies()
    received = [message for piece in pieces(b"".join(map(encode, sent)), cuts) for message in receiver.receive(piece)]
    assert received == sent


def test_every_message_has_a_strategy_here() -> None:
    assert len(get_args(messages.Request)) == 19
    assert len(get_args(messages.FromLauncher)) == 5


@given(st.binary(max_size=200))
def test_any_bytes_raise_only_a_protocol_error(data: bytes) -> None:
    for receiver in (codec.requests(), codec.replies()):
        try:
            receiver.receive(data + b"\n")
        except ProtocolError:
            continue
        else:
            raise AssertionError(data)


@given(json_values, st.sampled_from(["Sync", "Hello", "Reply", "Migrate", "StatusChanged"]))
def test_any_json_gives_a_message_or_a_protocol_error(body: Any, kind: str) -> None:
    line = json.dumps({"type": kind, "id": 1, "body": body}).encode() + b"\n"
    for receiver in (codec.requests(), codec.replies()):
        with contextlib.suppress(ProtocolError):
            assert len(receiver.receive(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"null",
        b'{"type":"Sync","id":1}',
        b'{"type":"Nothing","id":1,"body":{}}',
        b'{"type":["Sync"],"id":1,"body":{}}',
        b'{"type":"Suspend","id":true,"body":{}}',
        b'{"type":"Suspend","id":1.5,"body":{}}',
        b'{"type":"Suspend","id":null,"body":{}}',
        b'{"type":"Suspend","id":99999999999999999999,"body":{}}',
        b'{"type":"Suspend","id":1,"id":2,"body":{}}',
        b'{"type":"Suspend","id":1,"body":[]}',
        b'{"type":"Shutdown","id":1,"body":{"grace_seconds":NaN}}',
        b'{"type":"Shutdown","id":1,"body":{"grace_seconds":1e999}}',
        b'{"type":"Shutdown","id":1,"body":{"grace_seconds":"3"}}',
        b'{"type":"Shutdown","id":1,"body":{}}',
        b'{"type":"Migrate","id":1,"body":{"migration_uid":"\\ud800"}}',
        b'{"type":"Migrate","id":1,"body":{"migration_uid":"\xff"}}',
        b'{"type":"Suspend","id":' + b"1" * 5000 + b',"body":{}}',
        b"[" * 100_000,
    ],
    ids=lambda line: line[:60].decode(errors="replace"),
)
def test_hostile_lines_are_protocol_errors(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        codec.requests().receive(line + b"\n")


@pytest.mark.parametrize(
    "changes", [{"accelerator": "xen"}, {"interfaces": {}}, {"interfaces": [{"name": "a"}]}, {"domain": []}, {"uid": 7}], ids=str
)
def test_members_of_the_wrong_type_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match=rf"body\.machine\.{next(iter(changes))}"):
        codec.requests().receive(with_body(**changes))


def test_members_of_a_later_release_are_ignored() -> None:
    assert codec.requests().receive(with_body(invented_later=[1, 2])) == [CALL]


def test_a_line_without_an_end_is_refused_at_the_limit() -> None:
    receiver = codec.requests()
    assert receiver.receive(b" " * MAX_LINE_BYTES) == []
    with pytest.raises(ProtocolError, match="longer than"):
        receiver.receive(b" ")


def test_a_long_line_is_refused_although_its_end_came_with_it() -> None:
    with pytest.raises(ProtocolError, match="longer than"):
        codec.requests().receive(b" " * (MAX_LINE_BYTES + 1) + b"\n")


def a_hello(**status: Any) -> bytes:
    document = json.loads(encode(messages.Hello(messages.PROTOCOL, "x", messages.Status(1))))
    document["body"]["status"] |= status
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def test_a_launcher_has_shorter_lines_and_lists() -> None:
    with pytest.raises(ProtocolError, match="longer than"):
        codec.replies().receive(b" " * (MAX_REPLY_BYTES + 1))
    most = [{"name": "", "mac": ""}] * MAX_ITEMS
    assert codec.replies().receive(a_hello(interfaces=most))
    with pytest.raises(ProtocolError, match=r"body\.status\.interfaces: more than"):
        codec.replies().receive(a_hello(interfaces=[*most, most[0]]))
    with pytest.raises(ProtocolError, match="would take"):
        encode(messages.Hello(messages.PROTOCOL, "x" * MAX_REPLY_BYTES, messages.Status(1)))


@pytest.mark.parametrize(
    "body",
    [
        {"not_migratable": "a" * (300 << 10) + "\U0001f600"},
        {"interfaces": [{"name": "", "mac": "", "ip_addresses": ["aa"] * MAX_ITEMS}] * MAX_ITEMS},
    ],
)
def test_texts_with_a_large_memory_footprint_are_refused(body: dict[str, Any]) -> None:
    line = a_hello(**body)
    assert len(line) < MAX_REPLY_BYTES
    with pytest.raises(ProtocolError, match="bytes of memory"):
        codec.replies().receive(line)


def test_ignored_members_of_a_line_do_not_count() -> None:
    """From a later version or a hostile pod: nested as deep as the parser allows."""
    nested: Any = "a" * (300 << 10) + "\U0001f600"
    for _ in range(900):
        nested = [nested]
    assert codec.replies().receive(a_hello(of_a_later_release=nested))


def test_every_status_is_measured_and_requested_texts_are_not() -> None:
    long = "a" * (150 << 10) + "\U0001f600"
    status = messages.Status(1, not_migratable=long)
    for message in (messages.StatusChanged(status), messages.Reply(1, status), messages.Refusal(1, "Failed", "", status)):
        with pytest.raises(ProtocolError, match="bytes of memory"):
            codec.replies().receive(encode(message))
    assert codec.fits(long)
    assert codec.replies().receive(encode(messages.Content(1, long)))


def test_requested_text_has_a_maximum_length() -> None:
    for length, refusal in ((codec.MAX_CONTENT_BYTES, ""), (codec.MAX_CONTENT_BYTES + 1, "characters")):
        line = encode(messages.Content(1, "x" * length))
        with pytest.raises(ProtocolError, match=refusal) if refusal else contextlib.nullcontext():
            assert codec.replies().receive(line)


def test_the_longest_honest_status_fits() -> None:
    """64 interfaces of 16 addresses with names of 256 characters of four bytes: bounds from apiserver.apis.virt.spec.guestinfo."""
    name, address = "\U0001f600" * 256, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
    interface = messages.InterfaceStatus(name, name, name, (address,) * 16)
    agent = messages.AgentStatus(True, name, name, name, name, name, name)
    ending = messages.Ending("crashed", "m" * 4096, "u" * 63, ("\U0001f600" * 300,) * 20)
    status = messages.Status(1, interfaces=(interface,) * 64, agent=agent, ending=ending)
    assert codec.replies().receive(encode(messages.StatusChanged(status))) == [messages.StatusChanged(status)]


def test_a_receiver_that_saw_an_error_stays_unusable() -> None:
    receiver = codec.requests()
    with pytest.raises(ProtocolError):
        receiver.receive(b"nonsense\n")
    with pytest.raises(ProtocolError):
        receiver.receive(encode(CALL))


def test_a_connection_that_ends_inside_a_message_is_an_error() -> None:
    receiver = codec.requests()
    receiver.receive(encode(CALL)[:-1])
    with pytest.raises(ProtocolError, match="inside a message"):
        receiver.close()


@pytest.mark.parametrize(
    "domain",
    [{"a": "x" * MAX_LINE_BYTES}, {"a": float("nan")}, {"a": object()}, {"a": "\ud800"}],
    ids=["long", "nan", "object", "surrogate"],
)
def test_unsendable_messages_are_refused_before_sending(domain: dict[str, Any]) -> None:
    machine = messages.Machine("default", "testvm", "u-1", domain, "qemu")
    with pytest.raises(ProtocolError):
        encode(messages.Call(1, messages.Sync(machine)))


def other_hello(**members: Any) -> bytes:
    return json.dumps({"type": "Hello", "body": members}).encode() + b"\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"protocol": 2, "launcher_version": "v9", "state": "as nobody knows it"},
            "virt-launcher v9 uses protocol version 2, and virt-handler 1",
        ),
        ({"launcher_version": "v0"}, "virt-launcher v0 uses protocol version 0"),
        ({"protocol": 2, "launcher_version": "x\n" * 500}, "virt-launcher x | x"),
        ({"protocol": 10**17, "launcher_version": 7}, r"virt-launcher \? uses protocol version \?"),
    ],
    ids=["a later one", "none", "a long name", "a long number"],
)
def test_other_protocol_version_is_distinguished_from_violations(body: dict[str, Any], said: str) -> None:
    with pytest.raises(codec.OtherProtocol, match=said) as told:
        codec.replies().receive(other_hello(**body))
    assert len(str(told.value)) < 200
    assert str(told.value).isprintable()


@pytest.mark.parametrize("body", [{"protocol": 1}, {"protocol": "2"}, {"protocol": True}, {"protocol": None}], ids=str)
def test_a_hello_that_is_none_is_not_another_version(body: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as told:
        codec.replies().receive(other_hello(**body))
    assert not isinstance(told.value, codec.OtherProtocol)
