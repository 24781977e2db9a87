"""Writes ``structure.json``, ``typed.py`` and ``docs/fields.md``, and prints fields without a test."""

from __future__ import annotations

import sys

from apiserver.apis.virt.v1alpha1 import types
from tests.fields import families, page, schema, shapes, typed


def main() -> int:
    fields = schema.fields(schema.definitions(types.VirtualMachine))
    entries = families.seen(families.written())
    for file, text in ((shapes.FILE, shapes.text()), (typed.FILE, typed.text()), (page.FILE, page.text(fields, entries))):
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.relative_to(families.ROOT)}")
    wrong = families.faults(fields, entries)
    for fault in wrong:
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
