"""Generated expressions: typed, so most are valid, with occasional mistakes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

Make = Callable[["Generator", int], str]
TYPES: Final = ("bool", "int", "uint", "double", "string", "ints", "strings", "map", "duration", "timestamp", "optional", "dyn")
_WORDS: Final = ("", "a", "ab", "abc", "db", "x,y", "1", "-5", "1.5", "true", "ä", "a b", "512Mi", "1h", "10.0.0.1", "%s", "A-Z")
_INTS: Final = ("0", "1", "2", "3", "-1", "7", "100", "9223372036854775807", "-9223372036854775808")


class Generator:
    """Random expressions from one seed; ``names``: the loop variables in scope, and their types."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: list[tuple[str, str]] = []

    def expression(self, depth: int = 4) -> str:
        return self.of(self.random.choice(TYPES), depth)

    def of(self, kind: str, depth: int) -> str:
        if self.random.random() < 0.02:
            kind = self.random.choice(TYPES)
        names = [name for name, of in self.names if of == kind]
        if names and self.random.random() < 0.4:
            return self.random.choice(names)
        table = _LEAVES if depth <= 0 or self.random.random() < 0.15 else _NODES
        return self.random.choice(table[kind])(self, depth - 1)

    def fill(self, template: str, depth: int) -> str:
        parts = template.split("⟨")
        filled = [parts[0]]
        for part in parts[1:]:
            kind, _, rest = part.partition("⟩")
            filled.append(f"({self.of(kind, depth)})" + rest)
        return "".join(filled)

    def loop(self, over: str, element: str, template: str, depth: int) -> str:
        name = f"v{len(self.names)}"
        target = self.of(over, depth)
        self.names.append((name, element))
        body = self.fill(template.replace("V", name), depth)
        self.names.pop()
        return f"({target}).{body}"

    def loop2(self, over: str, first: str, second: str, template: str, depth: int) -> str:
        one, two = f"v{len(self.names)}", f"v{len(self.names) + 1}"
        target = self.of(over, depth)
        self.names += [(one, first), (two, second)]
        body = self.fill(template.replace("V", one).replace("W", two), depth)
        del self.names[-2:]
        return f"({target}).{body}"


def _t(template: str) -> Make:
    return lambda generator, depth: generator.fill(template, depth)


def _l(over: str, element: str, template: str) -> Make:
    return lambda generator, depth: generator.loop(over, element, template, depth)


def _l2(over: str, first: str, second: str, template: str) -> Make:
    return lambda generator, depth: generator.loop2(over, first, second, template, depth)


def _one_of(*texts: str) -> Make:
    return lambda generator, _: generator.random.choice(texts)


def _word(generator: Generator, _: int) -> str:
    return repr(generator.random.choice(_WORDS))


_LEAVES: Final[dict[str, tuple[Make, ...]]] = {
    "bool": (_one_of("true", "false", "object.spec.running", "object.spec.none", "has(object.spec.none)", "has(object.spec.memory)"),),
    "int": (_one_of(*_INTS), _one_of("object.spec.replicas", "params.limit", "object.metadata.generation", "object.spec.disks[0].size")),
    "uint": (_one_of("0u", "1u", "5u", "18446744073709551615u"),),
    "double": (_one_of("0.0", "1.0", "-1.5", "2.5", "1e10", "1e20", "object.spec.ratio"),),
    "string": (_word, _word, _one_of("object.metadata.name", "object.spec.memory", "params.data.max", "object.spec.nothing")),
    "ints": (_one_of("[]", "[1, 2, 3]", "[3, 1, 2, 1]", "object.spec.numbers", "object.spec.empty", "[0, 5]"),),
    "strings": (_one_of("['a', 'b']", "['b', 'a', 'b']", "[]", "params.data.names.split(',')"),),
    "map": (_one_of("{'a': 1, 'b': 2}", "{'x': 5}", "{}"),),
    "duration": (_one_of("duration('1h')", "duration('0s')", "duration('-90.5s')", "duration('2562047h')"),),
    "timestamp": (_one_of("timestamp('2020-02-29T12:30:45.5Z')", "timestamp(0)", "timestamp('9999-12-31T00:00:00Z')"),),
    "optional": (_one_of("optional.none()", "optional.of(1)", "object.spec.?replicas", "object.?none.?x", "[1, 2][?5]"),),
    "dyn": (_one_of("dyn(1)", "dyn('a')", "dyn(1.5)", "dyn([1])", "object.spec", "object.spec.nothing", "object.spec.disks", "dyn(1u)"),),
}
_COMPARED: Final = ("int", "uint", "double", "string", "duration", "timestamp", "bool")


def _compared(generator: Generator, depth: int) -> str:
    kind = generator.random.choice(_COMPARED)
    sign = generator.random.choice(("<", "<=", ">", ">=", "==", "!="))
    return generator.fill(f"⟨{kind}⟩ {sign} ⟨{kind}⟩", depth)


def _equal(generator: Generator, depth: int) -> str:
    kind = generator.random.choice(TYPES)
    return generator.fill(f"⟨{kind}⟩ {generator.random.choice(('==', '!='))} ⟨{kind}⟩", depth)


def _ternary(kind: str) -> Make:
    return _t(f"⟨bool⟩ ? ⟨{kind}⟩ : ⟨{kind}⟩")


_NODES: Final[dict[str, tuple[Make, ...]]] = {
    "bool": (
        *map(
            _t,
            ("⟨bool⟩ && ⟨bool⟩", "⟨bool⟩ || ⟨bool⟩", "!⟨bool⟩", "⟨bool⟩ && ⟨bool⟩ && ⟨bool⟩", "⟨int⟩ in ⟨ints⟩", "⟨string⟩ in ⟨strings⟩"),
        ),
        *map(_t, ("⟨string⟩ in ⟨map⟩", "⟨string⟩.contains(⟨string⟩)", "⟨string⟩.startsWith(⟨string⟩)", "⟨string⟩.endsWith(⟨string⟩)")),
        *map(_t, ("⟨string⟩.matches('^[a-z]+$')", "⟨optional⟩.hasValue()", "⟨ints⟩.isSorted()", "sets.contains(⟨ints⟩, ⟨ints⟩)")),
        *map(_t, ("sets.intersects(⟨strings⟩, ⟨strings⟩)", "⟨dyn⟩ == ⟨dyn⟩", "isQuantity(⟨string⟩)", "isURL(⟨string⟩)", "isIP(⟨string⟩)")),
        _l("ints", "int", "all(V, ⟨bool⟩)"),
        _l("ints", "int", "exists(V, ⟨bool⟩)"),
        _l("strings", "string", "exists_one(V, ⟨bool⟩)"),
        _l("map", "string", "all(V, ⟨bool⟩)"),
        _l2("ints", "int", "int", "all(V, W, ⟨bool⟩)"),
        _l2("map", "string", "int", "exists(V, W, ⟨bool⟩)"),
        _compared,
        _compared,
        _equal,
        _ternary("bool"),
    ),
    "int": (
        *map(_t, ("⟨int⟩ + ⟨int⟩", "⟨int⟩ - ⟨int⟩", "⟨int⟩ * ⟨int⟩", "⟨int⟩ / ⟨int⟩", "⟨int⟩ % ⟨int⟩", "-⟨int⟩", "⟨string⟩.size()")),
        *map(_t, ("size(⟨ints⟩)", "⟨map⟩.size()", "int(⟨string⟩)", "int(⟨double⟩)", "int(⟨uint⟩)", "⟨ints⟩[⟨int⟩]", "⟨map⟩[⟨string⟩]")),
        *map(
            _t,
            (
                "⟨ints⟩.sum()",
                "⟨ints⟩.max()",
                "⟨ints⟩.indexOf(⟨int⟩)",
                "⟨string⟩.indexOf(⟨string⟩)",
                "⟨string⟩.lastIndexOf(⟨string⟩, ⟨int⟩)",
            ),
        ),
        *map(_t, ("⟨timestamp⟩.getFullYear()", "⟨timestamp⟩.getDayOfYear()", "⟨duration⟩.getMinutes()", "⟨optional⟩.orValue(⟨int⟩)")),
        _ternary("int"),
    ),
    "uint": (
        *map(_t, ("⟨uint⟩ + ⟨uint⟩", "⟨uint⟩ - ⟨uint⟩", "⟨uint⟩ * ⟨uint⟩", "⟨uint⟩ / ⟨uint⟩", "uint(⟨int⟩)", "uint(⟨string⟩)")),
        _ternary("uint"),
    ),
    "double": (
        *map(
            _t, ("⟨double⟩ + ⟨double⟩", "⟨double⟩ - ⟨double⟩", "⟨double⟩ * ⟨double⟩", "⟨double⟩ / ⟨double⟩", "-⟨double⟩", "double(⟨int⟩)")
        ),
        *map(_t, ("double(⟨string⟩)", "double(⟨uint⟩)")),
        _ternary("double"),
    ),
    "string": (
        *map(
            _t, ("⟨string⟩ + ⟨string⟩", "string(⟨int⟩)", "string(⟨double⟩)", "string(⟨bool⟩)", "string(⟨duration⟩)", "string(⟨timestamp⟩)")
        ),
        *map(_t, ("⟨string⟩.lowerAscii()", "⟨string⟩.upperAscii()", "⟨string⟩.trim()", "⟨string⟩.replace(⟨string⟩, ⟨string⟩)")),
        *map(_t, ("⟨string⟩.substring(⟨int⟩)", "⟨string⟩.substring(0, ⟨int⟩)", "⟨string⟩.charAt(⟨int⟩)", "⟨strings⟩.join(⟨string⟩)")),
        *map(
            _t,
            ("⟨strings⟩[⟨int⟩]", "strings.quote(⟨string⟩)", "⟨string⟩.find('[a-z]+')", "'%s'.format([⟨int⟩])", "'%s'.format([⟨double⟩])"),
        ),
        *map(_t, ("'%d-%s'.format([⟨int⟩, ⟨map⟩])", "'%.3f'.format([⟨double⟩])", "'%x'.format([⟨int⟩])", "'%s'.format([⟨strings⟩])")),
        _ternary("string"),
    ),
    "ints": (
        *map(_t, ("⟨ints⟩ + ⟨ints⟩", "[⟨int⟩, ⟨int⟩]", "⟨ints⟩.sort()", "⟨ints⟩.reverse()", "⟨ints⟩.distinct()", "⟨ints⟩.slice(0, ⟨int⟩)")),
        *map(_t, ("[⟨ints⟩, ⟨ints⟩].flatten()", "[?⟨optional⟩, ⟨int⟩]", "[⟨optional⟩, ⟨optional⟩].unwrapOpt()", "lists.range(3)")),
        _l("ints", "int", "map(V, ⟨int⟩)"),
        _l("ints", "int", "map(V, ⟨bool⟩, ⟨int⟩)"),
        _l("strings", "string", "map(V, ⟨int⟩)"),
        _l("ints", "int", "filter(V, ⟨bool⟩)"),
        _l("ints", "int", "sortBy(V, ⟨int⟩)"),
        _l2("ints", "int", "int", "transformList(V, W, ⟨int⟩)"),
        _l2("map", "string", "int", "transformList(V, W, ⟨bool⟩, ⟨int⟩).sort()"),
        _ternary("ints"),
    ),
    "strings": (
        *map(
            _t,
            ("⟨strings⟩ + ⟨strings⟩", "[⟨string⟩, ⟨string⟩]", "⟨string⟩.split(⟨string⟩)", "⟨string⟩.findAll('[a-z]')", "⟨strings⟩.sort()"),
        ),
        _l("strings", "string", "map(V, ⟨string⟩)"),
        _l("strings", "string", "filter(V, ⟨bool⟩)"),
        _l("ints", "int", "map(V, ⟨string⟩)"),
        _ternary("strings"),
    ),
    "map": (
        *map(_t, ("{⟨string⟩: ⟨int⟩}", "{'a': ⟨int⟩, 'b': ⟨int⟩}", "{?'a': ⟨optional⟩}")),
        _l2("map", "string", "int", "transformMap(V, W, ⟨int⟩)"),
        _l2("map", "string", "int", "transformMap(V, W, ⟨bool⟩, ⟨int⟩)"),
        _l2("ints", "int", "int", "transformMapEntry(V, W, {string(V): ⟨int⟩})"),
        _ternary("map"),
    ),
    "duration": (
        *map(_t, ("⟨duration⟩ + ⟨duration⟩", "⟨duration⟩ - ⟨duration⟩", "-⟨duration⟩", "⟨timestamp⟩ - ⟨timestamp⟩", "duration(⟨string⟩)")),
    ),
    "timestamp": (
        *map(_t, ("⟨timestamp⟩ + ⟨duration⟩", "⟨timestamp⟩ - ⟨duration⟩", "timestamp(⟨int⟩)", "timestamp(⟨string⟩)")),
        _ternary("timestamp"),
    ),
    "optional": (
        *map(
            _t, ("optional.of(⟨int⟩)", "⟨ints⟩[?⟨int⟩]", "⟨map⟩[?⟨string⟩]", "optional.ofNonZeroValue(⟨int⟩)", "⟨optional⟩.or(⟨optional⟩)")
        ),
        *map(_t, ("⟨map⟩.?a", "⟨ints⟩.first()", "⟨ints⟩.last()")),
        _l("optional", "int", "optMap(V, ⟨int⟩)"),
        _l("optional", "int", "optFlatMap(V, ⟨optional⟩)"),
    ),
    "dyn": (
        *map(
            _t,
            (
                "dyn(⟨int⟩)",
                "dyn(⟨string⟩)",
                "dyn(⟨ints⟩)",
                "dyn(⟨map⟩)",
                "dyn(⟨double⟩)",
                "[dyn(⟨int⟩), dyn(⟨string⟩)]",
                "⟨dyn⟩[0]",
                "⟨dyn⟩.a",
            ),
        ),
    ),
}
