from __future__ import annotations

from apiserver.admission import errors
from apiserver.apis.meta.resources import Resource
from tests.fakes.admission import asking

THINGS = Resource("g.test", "v1", "things", "Thing")


def test_forbidden_names_what_has_no_name_yet() -> None:
    attributes = asking("CREATE", THINGS, obj={"metadata": {"generateName": "t-"}})
    assert errors.forbidden(attributes, "no").message == 'things.g.test "t-" is forbidden: no'
    assert errors.forbidden(asking("CREATE", THINGS), "no").message == 'things.g.test "Unknown" is forbidden: no'
