"""Names, links and layers in the documents exist; ARCHITECTURE.md and table rows are short."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from controller.manager import machine_metrics
from handler.metrics import guests, statistics

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "ARCHITECTURE.md"
LIVES = ROOT / "docs" / "development" / "lives.md"
DECISIONS = ROOT / "docs" / "decisions"
MAX_LINES = 150
MAX_PATHS = 40
MAX_WIDTH = 140
MAX_ROW = 200
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|yaml))`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
STEP = re.compile(r"^\d+\. .*?(?=^\d+\. |^$)", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([\w./-]+\.py)(?:::[^`]*)?`")
OF_TESTS = {"fields.md", "security-tests.md"}
DATED = re.compile(r"\(20\d\d-\d\d-\d\d\)$")


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def sections(text: str) -> dict[str, str]:
    return {each.partition("\n")[0]: each.partition("\n")[2] for each in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}


def steps(*documents: Path) -> list[tuple[str, str]]:
    return [
        (title, step)
        for document in documents
        for title, text in sections(document.read_text(encoding="utf-8")).items()
        for step in STEP.findall(text)
    ]


def absent(text: str) -> list[str]:
    return [each for each in PATH.findall(text) if not each.startswith("build/") and not (ROOT / each).exists()]


def test_the_book_is_short() -> None:
    lines = BOOK.read_text(encoding="utf-8").splitlines()

    assert len(lines) <= MAX_LINES
    assert len(set(PATH.findall("\n".join(lines)))) <= MAX_PATHS
    assert [each for each in lines if len(each) > MAX_WIDTH] == []


@pytest.mark.parametrize(
    "document", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/development/lives.md", "docs/development/where-to-begin.md"]
)
def test_every_file_that_is_named_is_there(document: str) -> None:
    assert absent((ROOT / document).read_text(encoding="utf-8")) == []


def test_the_book_tells_lives_in_steps() -> None:
    told = [title for title, _ in steps(BOOK, LIVES)]

    assert {title: told.count(title) > 5 for title in told} == {
        "The life of a request": True,
        "The life of a virtual machine": True,
        "A field of a guest's status: read, decided, written": True,
        "The life of a live migration": True,
        "The life of a drain": True,
        "The restart of virt-handler": True,
    }


@pytest.mark.parametrize("step", [step for _, step in steps(LIVES)], ids=lambda step: step[:40])
def test_every_step_of_the_further_lives_names_its_file(step: str) -> None:
    assert PATH.findall(step)


@pytest.mark.parametrize("title", sorted({title for title, _ in steps(BOOK)}))
def test_every_life_in_the_book_names_files_to_start_reading(title: str) -> None:
    named = [path for life, step in steps(BOOK) if life == title for path in PATH.findall(step)]

    assert len(named) >= 4


def test_the_layers_are_those_of_the_contract() -> None:
    (contract,) = (
        each
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
        if each["name"] == "Dependencies point down"
    )
    table = sections(BOOK.read_text(encoding="utf-8"))["The layers"]
    rows = [re.findall(r"`([\w.]+)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]

    assert rows == [*(layer.split(" | ") for layer in contract["layers"]), ["importer"]]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    links = LINK.findall(FENCED.sub("", document.read_text(encoding="utf-8")))

    assert [each for each in links if not (document.parent / each).exists()] == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_that_a_document_names_are_there(document: Path) -> None:
    named = re.findall(r"(?<![\w/.])docs/[\w/-]+\.md", document.read_text(encoding="utf-8"))

    assert [each for each in named if not (ROOT / each).exists()] == []


def long_rows(text: str) -> list[str]:
    return [line for line in FENCED.sub("", text).splitlines() if line.startswith("|") and len(line) >= MAX_ROW]


@pytest.mark.parametrize("document", [*documents(), *sorted(ROOT.glob("*/rbac.md"))], ids=lambda path: str(path.relative_to(ROOT)))
def test_rows_of_tables_have_less_than_200_characters(document: Path) -> None:
    assert long_rows(document.read_text(encoding="utf-8")) == []


def strays(text: str, *, of_tests: bool) -> list[str]:
    places = (ROOT, ROOT / "tests") if of_tests else (ROOT,)
    return [each for each in CODE.findall(text) if not any((place / each).is_file() for place in places)]


@pytest.mark.parametrize(
    "document",
    [path for path in documents() if path.relative_to(ROOT).parts[0] != "examples" and path.name != "apiserver-checklist-tests.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_modules_are_named_by_their_whole_paths(document: Path) -> None:
    of_tests = document.parent.name == "docs" and document.name in OF_TESTS

    assert strays(document.read_text(encoding="utf-8"), of_tests=of_tests) == []


PAGES = (
    "controller/manager/metrics.py",
    "handler/metrics/process.py",
    "controller/serving/reconcile_metrics.py",
)


@pytest.mark.parametrize("module", PAGES)
def test_operators_are_told_of_every_metric(module: str) -> None:
    metrics = re.findall(r'"((?:kubevirt|controller_runtime)_\w+)"', (ROOT / module).read_text(encoding="utf-8"))
    told = sections((ROOT / "docs" / "operating" / "servers.md").read_text(encoding="utf-8"))["Metrics"]

    assert metrics
    assert [each for each in metrics if f"`{each}`" not in told] == []


def test_operators_are_told_of_every_metric_of_machines() -> None:
    told = sections((ROOT / "docs" / "operating" / "servers.md").read_text(encoding="utf-8"))["Metrics of machines"]

    assert [
        each for each in (*guests.METRICS, statistics.MISSING, *machine_metrics.ABOUT) if f"`{getattr(each, 'name', each)}`" not in told
    ] == []


def test_the_table_of_decisions_names_every_topic() -> None:
    listed = LINK.findall((DECISIONS / "README.md").read_text(encoding="utf-8"))

    assert sorted(listed) == sorted(path.name for path in DECISIONS.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("topic", sorted(set(DECISIONS.glob("*.md")) - {DECISIONS / "README.md"}), ids=lambda path: path.stem)
def test_every_decision_has_its_price_and_its_date(topic: Path) -> None:
    found = sections(topic.read_text(encoding="utf-8"))

    assert found
    assert [title for title, text in found.items() if text.count("\nPrice: ") != 1 or not DATED.search(text.rstrip())] == []


def test_a_path_without_its_first_folder_is_found() -> None:
    text = "`apis/virt/power.py`, `apiserver/apis/virt/structure.py`, `unit/test_ports.py::test_x`, `power.py`, `tests/unit/test_ports.py`"

    assert strays(text, of_tests=False) == ["apis/virt/power.py", "unit/test_ports.py", "power.py"]
    assert strays(text, of_tests=True) == ["apis/virt/power.py", "power.py"]


def test_missing_paths_are_found() -> None:
    assert absent("`handler/nowhere.py`, `handler/`, `nowhere.md` and `spec.domain`") == ["handler/nowhere.py", "nowhere.md"]
