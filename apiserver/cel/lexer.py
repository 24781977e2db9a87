"""Split text into tokens."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from apiserver.cel.syntax import MAX_LENGTH, Source
from apiserver.cel.values import INT_MAX, UINT_MAX, CompileError, UInt, Value


class Token(NamedTuple):
    """A token at character ``at``.

    ``kind``: ``ident`` (also ``true``), ``literal`` (number or string, with a ``value``), ``end``, or the sign.
    """

    kind: str
    text: str
    at: int
    value: Value = None


_SPACE: Final = re.compile(r"(?:[ \t\r\n\f]+|//[^\n]*)*")
_NUMBER: Final = re.compile(
    r"(0x[0-9a-fA-F]+|[0-9]+(?![0-9]*\.[0-9])(?![0-9]*[eE][+-]?[0-9]))([uU]?)|(?:[0-9]*\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?"
)
_IDENT: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_QUOTED: Final = re.compile(r"([rRbB]{0,2})(\"\"\"|'''|\"|')")
_SIGNS: Final = ("==", "!=", "<=", ">=", "&&", "||", *"[]{}()<>.,-!?:+*/%")
_ESCAPES: Final = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34, "`": 96, "?": 63}
_HEX_LENGTHS: Final = {"x": 2, "X": 2, "u": 4, "U": 8}
_SURROGATES: Final = range(0xD800, 0xE000)


def tokens(source: Source) -> list[Token]:
    """Return an expression's tokens, the last with kind ``end``; raises CompileError."""
    text = source.text
    if len(text) > MAX_LENGTH:
        raise CompileError(f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_LENGTH}")
    found: list[Token] = []
    position = 0
    while True:
        position = _end(_SPACE.match(text, position), position)
        if position == len(text):
            found.append(Token("end", "<EOF>", position))
            return found
        token, position = _token(source, position)
        found.append(token)


def _end(match: re.Match[str] | None, otherwise: int) -> int:
    return match.end() if match else otherwise


def _token(source: Source, at: int) -> tuple[Token, int]:
    text = source.text
    if quoted := _QUOTED.match(text, at):
        return _string(source, at, quoted)
    if name := _IDENT.match(text, at):
        return Token("ident", name[0], at), name.end()
    if text[at].isdigit() or (text[at] == "." and text[at + 1 : at + 2].isdigit()):
        return _number(source, at)
    for sign in _SIGNS:
        if text.startswith(sign, at):
            return Token(sign, sign, at), at + len(sign)
    raise source.error(at, f"Syntax error: token recognition error at: '{text[at]}'")


def _number(source: Source, at: int) -> tuple[Token, int]:
    match = _NUMBER.match(source.text, at)
    if match is None:
        raise source.error(at, f"Syntax error: token recognition error at: '{source.text[at]}'")
    written, whole, unsigned = match[0], match[1], match[2]
    if whole is None:
        return Token("literal", written, at, float(written)), match.end()
    number = int(whole, 16 if whole.startswith("0x") else 10)
    if unsigned:
        if number > UINT_MAX:
            raise source.error(at, "invalid uint literal")
        return Token("literal", written, at, UInt(number)), match.end()
    if number > INT_MAX + 1:  # the parser checks a minus before it
        raise source.error(at, "invalid int literal")
    return Token("literal", written, at, number), match.end()


def _string(source: Source, at: int, opening: re.Match[str]) -> tuple[Token, int]:
    prefix, quote = opening[1].lower(), opening[2]
    if len(prefix) == 2 and prefix not in ("rb", "br"):
        raise source.error(at, f"Syntax error: token recognition error at: '{opening[0]}'")
    raw, is_bytes = "r" in prefix, "b" in prefix
    text, position = source.text, opening.end()
    out = bytearray()
    while not text.startswith(quote, position):
        if position >= len(text) or (len(quote) == 1 and text[position] in "\r\n"):
            raise source.error(at, f"Syntax error: token recognition error at: '{text[at : at + 20]}'")
        if text[position] == "\\" and not raw:
            position = _escape(source, position, out, is_bytes=is_bytes)
        elif text[position] == "\\":  # also in raw strings, for the quote
            out += text[position : position + 2].encode("utf-8", "surrogatepass")
            position += 2
        else:
            out += text[position].encode("utf-8", "surrogatepass")
            position += 1
    end = position + len(quote)
    value = bytes(out) if is_bytes else bytes(out).decode("utf-8", "replace")
    return Token("literal", text[at:end], at, value), end


def _escape(source: Source, at: int, out: bytearray, *, is_bytes: bool) -> int:
    letter = source.text[at + 1 : at + 2]
    if letter in _ESCAPES and letter:
        out.append(_ESCAPES[letter])
        return at + 2
    if length := _HEX_LENGTHS.get(letter, 0):
        digits, base, start = source.text[at + 2 : at + 2 + length], 16, at + 2
    else:
        digits, base, start, length = source.text[at + 1 : at + 4], 8, at + 1, 3
    try:
        code = int(digits, base) if len(digits) == length and digits.isalnum() else -1
    except ValueError:
        code = -1
    wide = letter in "uU" and base == 16
    if code < 0 or (base == 8 and code > 0o377) or (wide and (is_bytes or code > 0x10FFFF or code in _SURROGATES)):
        raise source.error(at, "Syntax error: token recognition error at: '" + source.text[at : at + 2] + "'")
    if is_bytes:
        out.append(code)
    else:
        out += chr(code).encode()
    return start + length
