from __future__ import annotations

import pytest

from apiserver.apis.virt.spec import plugins


@pytest.mark.parametrize("name", ["lan", "a", "0", "my-vlan-2", "x" * 40])
def test_names(name: str) -> None:
    assert plugins.is_name(name)
    assert plugins.names(f"{name},,other") == (name, "other")


@pytest.mark.parametrize("name", ["", "-a", "a-", ".", "..", "../sh", "/bin/sh", "a/b", "A", "a.b", "a b", "a\n", "ä", "x" * 41])
def test_invalid_plugin_names_are_refused(name: str) -> None:
    assert not plugins.is_name(name)
    if name:
        with pytest.raises(ValueError, match="is not a plugin name"):
            plugins.names(name)


def test_options() -> None:
    assert plugins.is_option_name("mtu")
    assert plugins.is_option_name("example.com_Some-key")
    assert not any(map(plugins.is_option_name, ("", "a=b", "-a", "a\n", "x" * 64)))
    assert not plugins.option_problem("") + plugins.option_problem("$(reboot) ; `ls`")
    assert plugins.option_problem("ä" * 513) == "must be no more than 1024 bytes"
    assert plugins.option_problem("a\nb") == plugins.option_problem("\x1b") == "must be one line of printable characters"
