from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tests.cuts.description import CUTS, END_SECONDS, LOSS_SECONDS, OPERATIONS, cases, cuts, steps
from tests.cuts.judging import PASSING_SECONDS, WINDOW_SECONDS
from tests.cuts.outcomes import Outcome
from tests.testbed import layout

DOCUMENT: Final = layout.REPOSITORY / "docs" / "faults.md"
NOT_RUN: Final = "?"
NOTHING: Final = "–"

LOSS: Final = "loss"
KINDS: Final = (False, True)
_RUN: Final = re.compile(r"Last run .*\.$", re.MULTILINE)
_SUCCEEDED: Final = re.compile(r"(?:\d+ )?Succeeded(?:, (?=[a-z])| (?=[\d(]))")
HEAD: Final = """\
# Faults during migrations, drains, upgrades and losses

`make test-faults` cuts one process or link at one step of a live migration, drain or upgrade, or loses a node, and writes this page.
{made}

The guest counts up to five times per second, to its disk with fsync and then to its console. A client on node1 queries it ten times per
second through a Service. A run fails, and the cell is bold, after:

- **lost data**: a written number is missing, or the counter went back.
- **ran two**: the vCPUs of two QEMU processes of the guest used processor time within {window} s, by the nodes' process tables.
- **hung**: {end:.0f} s after the cut, the operation is not over, the guest does not count, or the Service does not answer.
- **another's answer**: the client got an answer of another server.
- without a cut: a connection was refused or had no route, or the client waited more than {passing:.0f} s longer than the guest stood still.
- any other end than the expected one.

A cell has the Migration's result, unless all succeeded; the seconds from the cut to it (drain, upgrade: to the operation's end); then the
longest times in seconds without a count of the guest and without an answer to the client. `Failed`: the guest continues on its node.
`restarted`: the cut ended the guest itself; its written numbers are intact. The machine has two cores and emulates the guests'
processors. `{nothing}`: nothing to cut; `{not_run}`: not run.
"""


LOSS_HEAD: Final = """\
A node and its guest are lost for {loss:.0f} s, or until the guest runs elsewhere. Rows are kinds of loss, columns proofs and
moments. {made}

A cell has the seconds from the loss until the guest runs on the other node, if it restarts; else until it runs after the loss. It must not
restart, and the agent must not be asked, where a row leaves the node's kubelet or virt-handler a way to report.
"""


def written(outcomes: Mapping[str, Outcome], before: Mapping[str, str], date: str, made: Mapping[bool, str] = MappingProxyType({})) -> str:
    """Return the document. ``before``: texts of cells without an outcome; ``made``: by :func:`is_loss`, the line about an earlier run."""
    texts = {**before, **{name: _shown(each) for name, each in outcomes.items()}}
    there = {each.name for each in cases()}
    runs = {kind: _made((each for name, each in outcomes.items() if is_loss(name) is kind), date) or made.get(kind, "") for kind in KINDS}
    parts = [_head(runs[False])]
    for operation in OPERATIONS:
        columns = steps(operation)
        lines = [["", *(each.name for each in columns)], ["---"] * (len(columns) + 1)]
        for cut in cuts(operation):
            names = [f"{operation}.{cut.name}.{each.name}" for each in columns]
            lines.append([cut.name, *(texts.get(name, NOT_RUN) if name in there else NOTHING for name in names)])
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        when = "".join(f"- **{each.name}**: {each.when}.\n" for each in columns)
        intro = f"{LOSS_HEAD.format(loss=LOSS_SECONDS, made=runs[True])}\n" if operation == LOSS else ""
        parts.append(f"## {operation.capitalize()}\n\n{intro}{table}\n{when}")
    alike: dict[str, list[str]] = {}
    for each in CUTS:
        alike.setdefault(each.what, []).append(f"**{each.name}**")
    parts.append("## Cuts\n\n" + "".join(f"- {', '.join(names)}: {what}.\n" for what, names in alike.items()))
    return "\n".join(parts)


def _head(made: str) -> str:
    return HEAD.format(made=made, window=WINDOW_SECONDS, end=END_SECONDS, passing=PASSING_SECONDS, nothing=NOTHING, not_run=NOT_RUN)


def is_loss(case: str) -> bool:
    return case.startswith(f"{LOSS}.")


def runs_of(document: str) -> dict[bool, str]:
    before, _, after = document.partition(f"\n## {LOSS.capitalize()}\n")
    found = {kind: _RUN.search(text) for kind, text in ((False, before), (True, after))}
    return {kind: match.group(0) for kind, match in found.items() if match}


def read(document: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for section in document.split("\n## ")[1:]:
        operation = section.partition("\n")[0].lower()
        lines = [[word.strip() for word in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
        if operation in OPERATIONS and lines:
            for cut, *texts in lines[2:]:
                found |= {f"{operation}.{cut}.{step}": text for step, text in zip(lines[0][1:], texts, strict=True)}
    return {name: text for name, text in found.items() if text not in (NOTHING, NOT_RUN)}


def axes(document: str) -> dict[str, tuple[list[str], list[str]]]:
    found: dict[str, tuple[list[str], list[str]]] = {}
    for section in document.split("\n## ")[1:]:
        lines = [[word.strip() for word in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
        if lines:
            found[section.partition("\n")[0].lower()] = [line[0] for line in lines[2:]], lines[0][1:]
    return found


def write(outcomes: Mapping[str, Outcome], date: str) -> None:
    document = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    DOCUMENT.write_text(written(outcomes, read(document), date, runs_of(document)))


def _made(outcomes: Iterable[Outcome], date: str) -> str:
    count = Counter(each.commit for each in outcomes)
    commits = ", ".join(f"{commit} ({number} cases)" for commit, number in sorted(count.items()))
    return f"Last run {date}, at {commits}." if commits else ""


def _shown(found: Outcome) -> str:
    text = found.text[match.end() :] if (match := _SUCCEEDED.match(found.text)) else found.text
    words = " ".join([text.replace(" s; ", "; "), f"**{'; '.join(found.faults)}**" if found.faults else ""])
    return " ".join(words.replace("|", "/").split())
