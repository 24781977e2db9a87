from __future__ import annotations

from apiserver.apis.meta.users import User


def test_users_of_one_service_accounts_tokens_hash_apart() -> None:
    users = [User("sa", ("g",), "1", {"authentication.kubernetes.io/credential-id": (f"JTI={number}",)}) for number in range(1000)]
    assert len({hash(each) for each in users}) > 990
    assert hash(User("sa", extra={"a": ("1",), "b": ("2",)})) == hash(User("sa", extra={"b": ("2",), "a": ("1",)}))
