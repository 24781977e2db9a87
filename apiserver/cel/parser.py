"""Parse tokens to a syntax tree by precedence climbing, expanding macros."""

from __future__ import annotations

from typing import Final

from apiserver.cel import lexer, macros
from apiserver.cel.lexer import Token
from apiserver.cel.syntax import (
    MAX_DEPTH,
    Call,
    Constant,
    Ident,
    Index,
    Item,
    ListOf,
    MapOf,
    MessageOf,
    Node,
    Select,
    Source,
)
from apiserver.cel.values import INT_MAX, CompileError

_PRECEDENCE: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys("*/%", 5),
}
_RESERVED: Final = frozenset(
    "as break const continue else for function if import let loop package namespace return var void while".split()  # noqa: SIM905 - a line
)
_KEYWORDS: Final = {"true": True, "false": False, "null": None}


def parse(source: Source) -> Node:
    """Parse an expression, or raise CompileError."""
    parser = _Parser(source)
    try:
        node = parser.expression()
    except RecursionError:
        raise CompileError(f"expression recursion limit exceeded: {MAX_DEPTH}") from None
    parser.expect("end")
    return node


class _Parser:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens = lexer.tokens(source)
        self._next = 0
        self._depth = 0

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CompileError(f"expression recursion limit exceeded: {MAX_DEPTH}")
        condition = self._binary(1)
        if self._peek().kind == "?":
            at = self._take().at
            then = self._binary(1)
            self.expect(":")
            condition = Call(at, "?:", (condition, then, self.expression()))
        self._depth -= 1
        return condition

    def expect(self, kind: str) -> Token:
        token = self._take()
        if token.kind != kind:
            wanted = "<EOF>" if kind == "end" else f"'{kind}'"
            raise self._source.error(token.at, f"Syntax error: mismatched input '{token.text}' expecting {wanted}")
        return token

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _take_if(self, kind: str) -> bool:
        if self._peek().kind != kind:
            return False
        self._take()
        return True

    def _binary(self, lowest: int) -> Node:
        left = self._unary()
        while True:
            token = self._peek()
            operator = token.text if token.kind == "ident" else token.kind
            precedence = _PRECEDENCE.get(operator, 0)
            if precedence < lowest:
                return left
            self._take()
            right = self._binary(precedence + 1)
            if operator in ("&&", "||") and isinstance(left, Call) and left.function == operator and left.target is None:
                left = Call(left.at, operator, (*left.args, right))  # flat, for a chain of any length
            else:
                left = Call(token.at, operator, (left, right))

    def _unary(self) -> Node:
        token = self._peek()
        if token.kind not in ("!", "-"):
            return self._member()
        at, count = token.at, 0
        while self._take_if(token.kind):
            count += 1
        following = self._peek()
        if token.kind == "-" and following.kind == "literal" and type(following.value) in (int, float):
            if type(following.value) is int or count % 2:  # the last minus belongs to the number
                self._tokens[self._next] = following._replace(value=-following.value)
                count -= 1
            operand = self._member(negated=True)
        else:
            operand = self._member()
        return Call(at, token.kind + "_", (operand,)) if count % 2 else operand

    def _member(self, *, negated: bool = False) -> Node:
        node = self._primary(negated=negated)
        while True:
            token = self._peek()
            if token.kind == ".":
                self._take()
                node = self._selected(node, token.at)
            elif token.kind == "[":
                self._take()
                optional = self._take_if("?")
                key = self.expression()
                self.expect("]")
                node = Index(token.at, node, key, optional)
            elif token.kind == "{" and (name := qualified(node)) is not None:
                self._take()
                node = MessageOf(token.at, name, self._fields())
            else:
                return node

    def _selected(self, node: Node, at: int) -> Node:
        optional = self._take_if("?")
        name = self.expect("ident")
        if name.text in _KEYWORDS or name.text == "in":
            raise self._source.error(name.at, f"Syntax error: no viable alternative at input '.{name.text}'")
        if self._peek().kind == "(" and not optional:
            opened = self._take().at
            return macros.expand(self._source, Call(opened, name.text, self._arguments(")"), node))
        return Select(at, node, name.text, optional)

    def _primary(self, *, negated: bool) -> Node:
        token = self._take()
        match token.kind:
            case "literal":
                if type(token.value) is int and token.value > INT_MAX and not negated:
                    raise self._source.error(token.at, "invalid int literal")
                return Constant(token.at, token.value)
            case "ident":
                return self._named(token)
            case ".":
                return self._named(self.expect("ident"))
            case "(":
                node = self.expression()
                self.expect(")")
                return node
            case "[":
                return ListOf(token.at, self._elements())
            case "{":
                return MapOf(token.at, self._entries())
            case _:
                pass
        raise self._source.error(token.at, f"Syntax error: mismatched input '{token.text}' expecting an expression")

    def _named(self, token: Token) -> Node:
        if token.text in _KEYWORDS:
            return Constant(token.at, _KEYWORDS[token.text])
        if token.text in _RESERVED:
            raise self._source.error(token.at, f"reserved identifier: {token.text}")
        if token.text == "in":
            raise self._source.error(token.at, "Syntax error: mismatched input 'in' expecting an expression")
        if self._peek().kind != "(":
            return Ident(token.at, token.text)
        opened = self._take().at
        return macros.expand(self._source, Call(opened, token.text, self._arguments(")")))

    def _arguments(self, closing: str) -> tuple[Node, ...]:
        found: list[Node] = []
        if self._take_if(closing):
            return ()
        found.append(self.expression())
        while self._take_if(","):
            found.append(self.expression())
        self.expect(closing)
        return tuple(found)

    def _elements(self) -> tuple[Item, ...]:
        found: list[Item] = []
        while not self._take_if("]"):
            optional = self._take_if("?")
            found.append(Item(self.expression(), optional=optional))
            if not self._take_if(","):
                self.expect("]")
                break
        return tuple(found)

    def _entries(self) -> tuple[Item, ...]:
        found: list[Item] = []
        while not self._take_if("}"):
            optional = self._take_if("?")
            key = self.expression()
            self.expect(":")
            found.append(Item(self.expression(), key, optional=optional))
            if not self._take_if(","):
                self.expect("}")
                break
        return tuple(found)

    def _fields(self) -> tuple[Item, ...]:
        found: list[Item] = []
        while not self._take_if("}"):
            optional = self._take_if("?")
            name = self.expect("ident")
            self.expect(":")
            found.append(Item(self.expression(), name=name.text, optional=optional))
            if not self._take_if(","):
                self.expect("}")
                break
        return tuple(found)


def qualified(node: Node) -> str | None:
    """Return ``a.b.c`` for selections from a name, else None."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.optional and not node.test:
        parts.append(node.field)
        node = node.operand
    return ".".join([node.name, *reversed(parts)]) if isinstance(node, Ident) else None
