from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.mutants import filters, survivors, table
from tests.mutants.mutant import Key, mutants
from tests.testbed import layout

HERE = Key("a.py", "f", "Kind", "return x", "return y")
THERE = replace(HERE, module="b.py")
SOURCE = """\
def f(x: int | None) -> bool:
    return x == 1

class C:
    def g(self, x):
        if x == 1:
            return True
        return x == 1
"""


@pytest.mark.parametrize(
    ("made", "survived", "reasons", "modules", "expected"),
    [
        ([HERE], [], [], ["a.py"], survivors.Verdict((), (), ())),
        ([HERE], [HERE], [HERE], ["a.py"], survivors.Verdict((), (), ())),
        ([HERE], [HERE], [], ["a.py"], survivors.Verdict((HERE,), (), ())),
        ([HERE], [], [HERE], ["a.py"], survivors.Verdict((), (HERE,), ())),
        ([], [], [HERE], ["a.py"], survivors.Verdict((), (), (HERE,))),
        ([HERE], [HERE], [replace(HERE, after="return z")], ["a.py"], survivors.Verdict((HERE,), (), (replace(HERE, after="return z"),))),
        ([HERE], [], [THERE], ["a.py"], survivors.Verdict((), (), ())),
    ],
    ids=["killed", "with a reason", "without one", "noticed by now", "gone", "another change", "of a module that was not run"],
)
def test_survivors_and_entries_must_be_the_same(
    made: list[Key], survived: list[Key], reasons: list[Key], modules: list[str], expected: survivors.Verdict
) -> None:
    verdict = survivors.judge(made, survived, dict.fromkeys(reasons, "because"), modules)

    assert verdict == expected
    assert verdict.passed == (expected == survivors.Verdict((), (), ()))


def test_entries_are_read_as_they_are_written() -> None:
    keys = [replace(HERE, before='return "é\\n"', nth=2), HERE, THERE]
    text = survivors.written(keys).replace('reason = ""', 'reason = "because"')

    assert survivors.read(text) == dict.fromkeys(keys, "because")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("because", " "), "the reason is empty"),
        (('reason = "because"', ""), "without reason"),
        (('after = "return y"', ""), "without after"),
        (("operator", "kind"), "unknown kind"),
    ],
)
def test_an_entry_that_is_not_whole_is_refused(change: tuple[str, str], message: str) -> None:
    text = survivors.written([HERE]).replace('reason = ""', 'reason = "because"').replace(*change)

    with pytest.raises(ValueError, match=message):
        survivors.read(text)


def test_an_entry_that_stands_twice_is_refused() -> None:
    text = survivors.written([HERE]).replace('reason = ""', 'reason = "because"')

    with pytest.raises(ValueError, match="stands twice"):
        survivors.read(text + text)


def test_survivors_file_is_complete_and_names_mutated_modules() -> None:
    reasons = survivors.read(survivors.PATH.read_text(encoding="utf-8"))

    assert {key.module for key in reasons} <= {module.path for module in table.MODULES}


def test_the_lines_of_the_survivors_are_there() -> None:
    """Rewritten lines need a new verdict."""
    reasons = survivors.read(survivors.PATH.read_text(encoding="utf-8"))
    sources = {key.module: (layout.REPOSITORY / key.module).read_text(encoding="utf-8") for key in reasons}

    assert [key for key in reasons if key.before not in sources[key.module]] == []


def changed(line: int, old: str, new: str) -> dict[str, object]:
    lines = SOURCE.splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(old, new)
    return {"operator": "Kind", "line": line, "source": "".join(lines)}


def test_a_change_is_known_again_by_its_function_and_its_lines() -> None:
    found = mutants(
        "a.py", SOURCE, [changed(8, "==", "!="), changed(2, "1", "2"), changed(6, "== 1", "== 2"), changed(6, "if x == 1", "if not x == 1")]
    )

    assert [(each.line, each.key.function, each.key.before, each.key.after) for each in found] == [
        (2, "f", "return x == 1", "return x == 2"),
        (6, "C.g", "if x == 1:", "if x == 2:"),
        (6, "C.g", "if x == 1:", "if not x == 1:"),
        (8, "C.g", "return x == 1", "return x != 1"),
    ]
    moved = {"operator": "Kind", "line": 3, "source": f"import os\n{changed(2, '1', '2')['source']}"}
    (below,) = mutants("a.py", f"import os\n{SOURCE}", [moved])
    assert below.key == found[0].key


def test_the_same_change_of_the_same_line_is_counted() -> None:
    source = "def f(x):\n    x += 1\n    x += 1\n"
    first, second = (
        json.loads(json.dumps({"operator": "Kind", "line": line, "source": text}))
        for line, text in ((2, "def f(x):\n    x += 2\n    x += 1\n"), (3, "def f(x):\n    x += 1\n    x += 2\n"))
    )

    assert [each.key.nth for each in mutants("a.py", source, [first, second])] == [1, 2]


@pytest.mark.parametrize(
    ("operator", "before", "after", "reason"),
    [
        ("Kind", "def f(x: int | None) -> None: ...", "def f(x: int & None) -> None: ...", filters.NOTHING),
        ("Kind", "x: int | None = 1", "x: int & None = 1", filters.NOTHING),
        ("Kind", "def f(x, *, y=1): ...", "def f(x, /, y=1): ...", filters.NOTHING),
        ("Kind", "def f(x, *, y=1): ...", "def f(x, *, y=2): ...", None),
        ("Kind", "@dataclass(frozen=True)\nclass C: ...", "@dataclass(frozen=False)\nclass C: ...", filters.NOTHING),
        ("Kind", "@dataclass(order=True)\nclass C: ...", "@dataclass(order=False)\nclass C: ...", None),
        ("Kind", "x: int = 1", "x: int = 2", None),
        ("NumberReplacer", "x: int = 1", "x: int = 2", filters.CHOSEN),
        ("NumberReplacer", "x = timedelta(minutes=1)", "x = timedelta(minutes=2)", filters.CHOSEN),
        ("NumberReplacer", "def f(x):\n    y = 1", "def f(x):\n    y = 2", None),
        ("Kind", "_log.info('%d', x + 1)", "_log.info('%d', x - 1)", filters.NOTHING),
        ("Kind", "write('%d', x + 1)", "write('%d', x - 1)", None),
        ("Kind", "x = 1", "x = = 1", filters.BROKEN),
        ("Kind", "while x:\n    break", "while x:\n    pass", None),
        ("ReplaceComparisonOperator_Eq_Lt", "x == FAILED", "x < FAILED", filters.UNORDERED),
        ("ReplaceComparisonOperator_NotEq_GtE", "x != words.FAILED", "x >= words.FAILED", filters.UNORDERED),
        ("ReplaceComparisonOperator_Eq_LtE", "y == 'no' and x == 1", "y <= 'no' and x == 1", filters.UNORDERED),
        ("ReplaceComparisonOperator_Eq_LtE", "y == 'no' and x == 1", "y == 'no' and x <= 1", None),
        ("ReplaceComparisonOperator_Eq_NotEq", "x == FAILED", "x != FAILED", None),
    ],
)
def test_changes_that_cannot_matter_are_left_out(operator: str, before: str, after: str, reason: str | None) -> None:
    assert filters.in_vain(operator, before, after) == reason


@pytest.mark.parametrize(
    ("operator", "made"),
    [
        ("ReplaceComparisonOperator_Eq_Is", False),
        ("ReplaceComparisonOperator_Lt_IsNot", False),
        ("ReplaceComparisonOperator_Is_IsNot", True),
        ("ReplaceComparisonOperator_IsNot_Is", True),
        ("ReplaceComparisonOperator_Eq_NotEq", True),
    ],
)
def test_no_equality_becomes_an_identity(operator: str, made: bool) -> None:
    assert filters.is_made(operator) == made


def test_modules_are_chosen_by_name_and_by_path() -> None:
    assert [module.path for module in table.chosen(["phases", "power"])] == [
        "apiserver/apis/virt/lifecycle/phases.py",
        "apiserver/apis/virt/lifecycle/power.py",
    ]
    assert [module.path for module in table.chosen(["handler/identity/plan.py"])] == ["handler/identity/plan.py"]
    assert table.chosen([]) == table.MODULES
    with pytest.raises(ValueError, match="no module 'powr'"):
        table.chosen(["powr"])


def test_every_module_and_every_test_of_the_table_is_there() -> None:
    root = survivors.PATH.parents[2]

    assert all((root / path).is_file() for module in table.MODULES for path in (module.path, *module.tests))
