"""Compile a syntax tree to closures.

Unconditional costs are summed once; only branches and loops charge at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from apiserver.cel import aggregates, comparing, cost, loops, operators, parser, selecting
from apiserver.cel.code import Code, Run
from apiserver.cel.environment import TYPES, Environment, Program
from apiserver.cel.frame import Frame
from apiserver.cel.registry import Function
from apiserver.cel.syntax import (
    MAX_DEPTH,
    Bind,
    Call,
    Comprehension,
    Constant,
    Ident,
    Index,
    ListOf,
    MapOf,
    MessageOf,
    Node,
    Select,
    SortBy,
    Source,
)
from apiserver.cel.values import CelError, CompileError, Optional, Value, no_such_overload


def compile_expression(environment: Environment, text: str) -> Program:
    """Compile an expression, or raise CompileError with position and reason."""
    source = Source(text)
    compiler = Compiler(environment, source)
    try:
        code = compiler.compile(parser.parse(source), {})
    except RecursionError:
        raise CompileError(f"expression recursion limit exceeded: {MAX_DEPTH}") from None
    return Program(text, code.run, code.cost, compiler.slots)


class Compiler:
    """The compiler of one expression; implements :class:`apiserver.cel.code.Nodes`."""

    def __init__(self, environment: Environment, source: Source) -> None:
        self.slots = 0
        self.source = source
        self._environment = environment

    def slot(self) -> int:
        """Reserve a loop variable's slot."""
        self.slots += 1
        return self.slots - 1

    def compile(self, node: Node, scope: dict[str, int]) -> Code:
        """Compile a syntax node, or raise CompileError."""
        match node:
            case Constant(value=value):
                return Code(lambda _frame: value, 0, constant=True)
            case Ident() | Select():
                return self._path(node, scope)
            case Index():
                return self._index(node, scope)
            case Call():
                return self._call(node, scope)
            case ListOf():
                return aggregates.compile_list(self, node, scope)
            case MapOf():
                return aggregates.compile_map(self, node, scope)
            case MessageOf():
                if not self._environment.patches:
                    raise self.source.error(node.at, f"undeclared reference to '{node.name}' (in container '')")
                return aggregates.compile_message(self, node, scope)
            case Comprehension():
                return loops.compile_loop(self, node, scope)
            case Bind():
                return loops.compile_bind(self, node, scope)
            case SortBy():
                return loops.compile_sort_by(self, node, scope)

    def _path(self, node: Ident | Select, scope: dict[str, int]) -> Code:
        chain: list[Select] = []
        at: Node = node
        while isinstance(at, Select):
            chain.append(at)
            at = at.operand
        chain.reverse()
        base, used = self._name(at, chain, scope) if isinstance(at, Ident) else (self._base(at, scope), 0)
        rest = chain[used:]
        while rest:
            plain = 0
            while plain < len(rest) and not rest[plain].optional and not rest[plain].test:
                plain += 1
            base = self._selected(base, rest, plain)
            rest = rest[max(plain, 1) :]
        return base

    def _name(self, ident: Ident, chain: list[Select], scope: dict[str, int]) -> tuple[Code, int]:
        if (slot := scope.get(ident.name)) is not None:
            return Code(lambda frame: frame.slots[slot], 1), 0
        names = [ident.name]
        for each in chain:
            if each.optional or each.test:
                break
            names.append(f"{names[-1]}.{each.field}")
        for count in range(len(names) - 1, -1, -1):
            name = names[count]
            if name in self._environment.variables:
                self._check_field(name, chain[count:])
                return Code(_variable(name), 1), count
            if (found := TYPES.get(name)) is not None:
                return self.compile(Constant(ident.at, found), scope), count
        raise self.source.error(ident.at, f"undeclared reference to '{ident.name}' (in container '')")

    def _check_field(self, variable: str, rest: list[Select]) -> None:
        known = self._environment.fields.get(variable)
        if known is not None and rest and rest[0].field not in known:
            raise self.source.error(rest[0].at, f"undefined field '{rest[0].field}'")

    def _selected(self, base: Code, rest: list[Select], plain: int) -> Code:
        if plain == 1:
            return Code(_field(base.run, rest[0].field), base.cost + 1)
        if plain:
            return Code(_fields(base.run, tuple(each.field for each in rest[:plain])), base.cost + plain)
        run, name = base.run, rest[0].field
        if rest[0].test:
            return Code(lambda frame: selecting.has(run(frame), name), base.cost)
        return Code(lambda frame: selecting.optional_field(run(frame), name), base.cost + 1)

    def _base(self, node: Node, scope: dict[str, int]) -> Code:
        """Compile a selection's operand (``a`` of ``a.b``); it costs one more unless it is a name, a selection or an index."""
        code = self.compile(node, scope)
        return code if isinstance(node, Ident | Select | Index) else Code(code.run, code.cost + 1)

    def _index(self, node: Index, scope: dict[str, int]) -> Code:
        operand, key = self._base(node.operand, scope), self.compile(node.key, scope)
        get = selecting.optional_index if node.optional else selecting.index
        value, wanted = operand.run, key.run
        own = 0 if isinstance(node.key, Ident | Select | Index) else 1  # cel-go treats such a key as part of the path
        return Code(lambda frame: get(value(frame), wanted(frame)), operand.cost + key.cost + own)

    def _call(self, node: Call, scope: dict[str, int]) -> Code:
        if node.target is None and (special := _SPECIAL.get(node.function)) is not None:
            return special(self, node, scope)
        if node.target is not None and node.function in ("or", "orValue") and len(node.args) == 1:
            return self._or(node, node.target, scope)
        qualified = self._qualified(node, scope)
        name, target = (qualified, None) if qualified else (node.function, node.target)
        table = self._environment.library.members if target is not None else self._environment.library.functions
        nodes = node.args if target is None else (target, *node.args)
        function = table.get(name)
        if function is None:
            raise self.source.error(node.at, f"undeclared reference to '{name}' (in container '')")
        if len(nodes) not in function.counts:
            raise self.source.error(node.at, f"found no matching overload for '{name}' applied to {len(nodes)} arguments")
        codes = [self.compile(each, scope) for each in nodes]
        if name in _FOLDED and len(codes) == 1 and codes[0].constant and target is None:
            return _folded(_invoke(function, [codes[0].run]))
        return Code(_invoke(function, [each.run for each in codes]), sum(each.cost for each in codes))

    def _qualified(self, node: Call, scope: dict[str, int]) -> str:
        prefix = parser.qualified(node.target) if node.target is not None else None
        if prefix is None or prefix.partition(".")[0] in scope:
            return ""
        name = f"{prefix}.{node.function}"
        return name if name in self._environment.library.functions else ""

    def _or(self, node: Call, target: Node, scope: dict[str, int]) -> Code:
        left, right = self.compile(target, scope), self.compile(node.args[0], scope)
        value, otherwise, more, unwrap = left.run, right.run, right.cost, node.function == "orValue"

        def run(frame: Frame) -> Value:
            found = value(frame)
            if type(found) is not Optional:
                return found
            if found.present:
                return found.value if unwrap else found
            frame.cost += more
            return otherwise(frame)

        return Code(run, left.cost)


def _folded(run: Run) -> Code:
    try:
        value = run(Frame({}, 0))
    except CelError:
        return Code(run, 0)
    return Code(lambda _frame: value, 0, constant=True)


def _variable(name: str) -> Run:
    def run(frame: Frame) -> Value:
        try:
            return frame.variables[name]
        except KeyError:
            raise CelError(f"no such attribute(s): {name}") from None

    return run


def _field(base: Run, name: str) -> Run:
    def run(frame: Frame) -> Value:
        value = base(frame)
        if type(value) is dict and name in value:
            return value[name]
        return selecting.field(value, name)

    return run


def _fields(base: Run, names: tuple[str, ...]) -> Run:
    def run(frame: Frame) -> Value:
        value = base(frame)
        for name in names:
            value = value[name] if type(value) is dict and name in value else selecting.field(value, name)
        return value

    return run


def _invoke(function: Function, runs: list[Run]) -> Run:
    resolve = function.resolve
    if len(runs) == 1:
        only = runs[0]

        def one(frame: Frame) -> Value:
            value = only(frame)
            return resolve((type(value),))(frame, value)

        return one
    if len(runs) == 2:
        first, second = runs

        def two(frame: Frame) -> Value:
            left, right = first(frame), second(frame)
            return resolve((type(left), type(right)))(frame, left, right)

        return two

    def many(frame: Frame) -> Value:
        values = [run(frame) for run in runs]
        return resolve(tuple(map(type, values)))(frame, *values)

    return many


def _logical(compiler: Compiler, node: Call, scope: dict[str, int]) -> Code:
    codes = [compiler.compile(each, scope) for each in node.args]
    first, *others = codes
    terms = ((first.run, 0), *((each.run, each.cost) for each in others))
    deciding = node.function == "||"

    def run(frame: Frame) -> Value:
        failed: CelError | None = None
        for term, more in terms:
            frame.cost += more
            try:
                value = term(frame)
            except CelError as error:
                failed = failed or error
                continue
            if value is deciding:
                return deciding
            if type(value) is not bool:
                failed = failed or no_such_overload()
        if failed is not None:
            raise failed
        return not deciding

    return Code(run, first.cost)


def _conditional(compiler: Compiler, node: Call, scope: dict[str, int]) -> Code:
    condition, then, otherwise = (compiler.compile(each, scope) for each in node.args)
    test = condition.run

    def run(frame: Frame) -> Value:
        value = test(frame)
        if type(value) is not bool:
            raise no_such_overload()
        branch = then if value else otherwise
        frame.cost += branch.cost
        return branch.run(frame)

    return Code(run, condition.cost)


def _not(compiler: Compiler, node: Call, scope: dict[str, int]) -> Code:
    operand = compiler.compile(node.args[0], scope)
    value = operand.run

    def run(frame: Frame) -> Value:
        found = value(frame)
        if type(found) is not bool:
            raise no_such_overload()
        return not found

    return Code(run, operand.cost + 1)


def _negate(compiler: Compiler, node: Call, scope: dict[str, int]) -> Code:
    operand = compiler.compile(node.args[0], scope)
    value = operand.run
    return Code(lambda frame: operators.negate(value(frame)), operand.cost + 1)


def _arithmetic(compiler: Compiler, node: Call, scope: dict[str, int]) -> Code:
    """Compile a chain of one operator as one node, so long chains do not recurse."""
    operands = [node.args[1]]
    left = node.args[0]
    while isinstance(left, Call) and left.function == node.function and left.target is None and len(left.args) == 2:
        operands.append(left.args[1])
        left = left.args[0]
    operands.append(left)
    codes = [compiler.compile(each, scope) for each in reversed(operands)]
    table = operators.ARITHMETIC[node.function]
    first, *others = (each.run for each in codes)

    def run(frame: Frame) -> Value:
        value = first(frame)
        for other in others:
            right = other(frame)
            operation = table.get((type(value), type(right)))
            if operation is None:
                raise no_such_overload()
            value = operation(frame, value, right)
        return value

    return Code(run, sum(each.cost for each in codes) + len(others))


def _equality(compiler: Compiler, node: Call, scope: dict[str, int]) -> Code:
    left, right = (compiler.compile(each, scope) for each in node.args)
    first, second, same, equal = left.run, right.run, node.function == "==", comparing.equal
    charge = aggregates.charge_equality

    def run(frame: Frame) -> Value:
        one, other = first(frame), second(frame)
        kind = type(one)
        if kind is bool or kind is int or one is None:
            frame.cost += 1
        else:
            charge(frame, one, other)
        return equal(one, other) is same

    return Code(run, left.cost + right.cost)


def _ordering(compiler: Compiler, node: Call, scope: dict[str, int]) -> Code:
    left, right = (compiler.compile(each, scope) for each in node.args)
    first, second = left.run, right.run
    wanted = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}[node.function]

    def run(frame: Frame) -> Value:
        one, other = first(frame), second(frame)
        aggregates.charge_equality(frame, one, other)
        return comparing.compare(one, other) in wanted

    return Code(run, left.cost + right.cost)


def _in(compiler: Compiler, node: Call, scope: dict[str, int]) -> Code:
    left, right = (compiler.compile(each, scope) for each in node.args)
    first, second, free = left.run, right.run, right.constant
    if isinstance(node.args[1], ListOf) and not node.args[1].items:
        return Code(lambda _frame: False, 0, constant=True)

    def run(frame: Frame) -> Value:
        value, container = first(frame), second(frame)
        if type(container) is list:
            if not free:
                frame.charge(len(container))
                if type(value) in (list, dict):
                    frame.toil(cost.nodes(value) * len(container))
            return comparing.contains(container, value)
        frame.cost += 1
        return aggregates.has_key(container, value)

    return Code(run, left.cost + right.cost)


_FOLDED: Final = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
_SPECIAL: Final[dict[str, Callable[[Compiler, Call, dict[str, int]], Code]]] = {
    "&&": _logical,
    "||": _logical,
    "?:": _conditional,
    "!_": _not,
    "-_": _negate,
    "==": _equality,
    "!=": _equality,
    "in": _in,
    **dict.fromkeys(("<", "<=", ">", ">="), _ordering),
    **dict.fromkeys("+-*/%", _arithmetic),
}
