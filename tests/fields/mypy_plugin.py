"""A mypy plugin for ``dig`` and ``get`` of TypedDicts: a field that the models lack is an error.

The result of :func:`apiserver.apis.meta.objects.dig` has the field's type, or is None. A path into a plain dictionary stays ``Any``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mypy.checker import TypeChecker
from mypy.nodes import ImportFrom, MypyFile, StrExpr, TypeInfo
from mypy.plugin import FunctionContext, MethodContext, Plugin
from mypy.plugins.default import typed_dict_get_callback
from mypy.typeops import make_simplified_union, try_getting_str_literals
from mypy.types import Instance, LiteralType, NoneType, ProperType, Type, TypedDictType, UnionType, get_proper_type

DIG = "apiserver.apis.meta.objects.dig"
KINDS = "apiserver.apis.virt.kinds"
TYPED = "apiserver.apis.virt.typed"
DIG_OF_KIND = {
    f"{KINDS}.dig_vm": "VirtualMachine",
    f"{KINDS}.dig_migration": "Migration",
    f"{KINDS}.dig_policy": "MigrationPolicy",
    f"{KINDS}.dig_replica_set": "VirtualMachineReplicaSet",
}
"""``dig`` for plain objects of a kind."""
GET = "typing.Mapping.get"
_PRIORITY = 10
_SCALARS = frozenset({"builtins.str", "builtins.int", "builtins.bool", "builtins.list"})


class TypedObjects(Plugin):
    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        if fullname in DIG_OF_KIND:
            return partial(_dug_of_kind, DIG_OF_KIND[fullname])
        return _dug if fullname == DIG else None

    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        """Return the types' module as a dependency of a file that imports from ``KINDS``, so mypy rechecks it after changes."""
        reads = any(each.id == KINDS for each in file.imports if isinstance(each, ImportFrom))
        return [(_PRIORITY, TYPED, -1)] if reads else []

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        return _got if fullname == GET else None


def _got(context: MethodContext) -> Type:
    if isinstance(context.type, TypedDictType) and context.args[0]:
        for key in try_getting_str_literals(context.args[0][0], context.arg_types[0][0]) or ():
            if key not in context.type.items:
                context.api.fail(_unknown(context.type, key), context.args[0][0])
    return typed_dict_get_callback(context)


def _dug(context: FunctionContext) -> Type:
    return _at_path(context, context.arg_types[0][0])


def _dug_of_kind(kind: str, context: FunctionContext) -> Type:
    assert isinstance(context.api, TypeChecker)
    found = context.api.modules[TYPED].names[kind].node
    assert isinstance(found, TypeInfo)
    assert found.typeddict_type is not None
    return _at_path(context, found.typeddict_type)


def _at_path(context: FunctionContext, start: Type) -> Type:
    if len(context.args) != 2 or not all(isinstance(each, StrExpr) for each in context.args[1]):
        return context.default_return_type
    found = [start]
    for step in context.args[1]:
        assert isinstance(step, StrExpr)
        below = [_step(get_proper_type(each), context, step) for each in found]
        if None in below:
            return context.default_return_type
        found = [inner for each in below for inner in each or ()]
    return make_simplified_union([*found, NoneType()])


def _step(of: ProperType, context: FunctionContext, step: StrExpr) -> list[Type] | None:
    key = step.value
    if isinstance(of, UnionType):
        found: list[Type] = []
        for each in of.items:
            inner = _step(get_proper_type(each), context, step)
            if inner is None:
                return None
            found += inner
        return found
    if isinstance(of, TypedDictType):
        if key in of.items:
            return [of.items[key]]
        context.api.fail(_unknown(of, key), step)
        return None
    if (scalar := _scalar(of)) is not None:
        context.api.fail(f'"{scalar}" has no field "{key}"', step)
        return None
    if isinstance(of, Instance) and of.type.has_readable_member("keys") and len(of.args) == 2:
        inner_type = get_proper_type(of.args[1])
        return None if not isinstance(inner_type, Instance | TypedDictType | UnionType) else [inner_type]
    return [] if isinstance(of, NoneType) else None


def _scalar(of: ProperType) -> str | None:
    instance = of.fallback if isinstance(of, LiteralType) else of
    return instance.type.name if isinstance(instance, Instance) and instance.type.fullname in _SCALARS else None


def _unknown(of: TypedDictType, key: str) -> str:
    name = of.fallback.type.name
    return f'"{name}" has no field "{key}"'


def plugin(version: str) -> type[Plugin]:
    del version
    return TypedObjects
