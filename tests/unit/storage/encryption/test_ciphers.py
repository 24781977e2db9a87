import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.encryption.ciphers import PLAIN, AesCbc, AesGcm, Chain, Identity, Provider, Secretbox, Undecryptable

ABOUT = b"/registry/kubevirt.io/virtualmachines/default/a"
KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
KEYED: list[type[AesGcm | AesCbc | Secretbox]] = [AesGcm, AesCbc, Secretbox]


@pytest.mark.parametrize("kind", KEYED)
@given(value=st.binary(max_size=100))
def test_every_provider_decrypts_its_output_which_never_repeats(kind: type[AesGcm | AesCbc | Secretbox], value: bytes) -> None:
    chain = Chain((kind("k1", KEY),))
    stored = chain.seal(value, ABOUT)
    assert chain.unseal(stored, ABOUT) == (value, False)
    assert stored.startswith(b"k8s:enc:%s:v1:k1:" % kind.__name__.lower().encode())
    assert chain.seal(value, ABOUT) != stored


@pytest.mark.parametrize("kind", KEYED)
@given(data=st.data())
def test_damaged_values_are_undecryptable_and_nothing_worse(kind: type[AesGcm | AesCbc | Secretbox], data: st.DataObject) -> None:
    chain = Chain((kind("k1", KEY),))
    stored = bytearray(chain.seal(b'{"a": 1}', ABOUT))
    at = data.draw(st.integers(len(b"k8s:enc:"), len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(stored)))
    for damaged in (bytes(stored), bytes(stored[:cut]) if cut > 8 else bytes(stored)):
        try:
            value, _ = chain.unseal(damaged, ABOUT)
        except Undecryptable:
            continue
        assert kind is AesCbc  # it does not authenticate
        assert value != b'{"a": 1}'


def test_a_value_moved_to_another_key_is_refused_by_aesgcm() -> None:
    stored = Chain((AesGcm("k1", KEY),)).seal(b"value", ABOUT)
    with pytest.raises(Undecryptable, match="moved"):
        Chain((AesGcm("k1", KEY),)).unseal(stored, ABOUT + b"b")


def test_first_provider_writes_and_output_of_others_is_stale() -> None:
    old, new = AesCbc("1", KEY), AesGcm("2", KEY)
    stored = Chain((old,)).seal(b"value", ABOUT)
    assert Chain((new, old)).unseal(stored, ABOUT) == (b"value", True)
    assert Chain((new, old)).unseal(Chain((new, old)).seal(b"value", ABOUT), ABOUT) == (b"value", False)
    with pytest.raises(Undecryptable):
        Chain((new,)).unseal(stored, ABOUT)


def test_a_key_of_the_same_name_does_not_hide_the_right_one() -> None:
    stored = Chain((AesGcm("1", KEY),)).seal(b"value", ABOUT)
    assert Chain((AesGcm("1", OTHER), AesGcm("1", KEY))).unseal(stored, ABOUT) == (b"value", True)


def test_plaintext_is_read_until_identity_is_removed() -> None:
    keyed = AesGcm("1", KEY)
    assert Chain((keyed, Identity())).unseal(b'{"a":1}', ABOUT) == (b'{"a":1}', True)
    with pytest.raises(Undecryptable, match="no provider"):
        Chain((keyed,)).unseal(b'{"a":1}', ABOUT)


def test_on_the_way_back_identity_writes_and_the_key_still_reads() -> None:
    keyed = AesGcm("1", KEY)
    chain = Chain((Identity(), keyed))
    assert chain.unseal(Chain((keyed,)).seal(b"value", ABOUT), ABOUT) == (b"value", True)
    assert chain.seal(b"value", ABOUT) == b"value"
    with pytest.raises(Undecryptable, match="encrypted"):
        PLAIN.unseal(Chain((keyed,)).seal(b"value", ABOUT), ABOUT)


def test_keys_do_not_show() -> None:
    providers: list[Provider] = [AesGcm("1", KEY), AesCbc("1", KEY), Secretbox("1", KEY)]
    shown = repr(Chain(providers)) + repr([*map(repr, providers)])
    assert repr(KEY)[2:10] not in shown
    assert base64.b64encode(KEY).decode() not in shown
