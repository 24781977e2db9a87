"""Validation of ``spec.domain`` and ``spec.domainXML``, alone or combined."""

from __future__ import annotations

import copy
from typing import Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required
from apiserver.apis.virt.domainxml import beside, parsing, reading
from apiserver.apis.virt.domainxml.grammar import Problem
from apiserver.apis.virt.hardware import disks, given
from apiserver.apis.virt.spec import described
from apiserver.apis.virt.v1alpha1 import defaults
from apiserver.apis.virt.v1alpha1.domain import document
from apiserver.apis.virt.v1alpha1.domain.rules import Object

DOMAIN: Final = "domain"
XML: Final = "domainXML"
MAX_SHOWN: Final = 80
"""Characters of XML in an error."""


def validate(spec: Object, path: Path) -> list[FieldError]:
    """Return errors in the spec's ``domain`` and ``domainXML``, below ``path``; one is required."""
    xml, typed = spec.get(XML), spec.get(DOMAIN)
    if xml is None:
        if typed is None:
            return [required(path.child(DOMAIN), "set this or spec.domainXML")]
        return document.validate(typed, path.child(DOMAIN))
    if (count := parsing.element_count(xml)) > parsing.MAX_ELEMENTS_ADMITTED:  # too large to parse
        text = f"may not have more than {parsing.MAX_ELEMENTS_ADMITTED} elements, but has {count}, including those in comments"
        return [forbidden(path.child(XML), text)]
    return [*_validate_beside(xml, typed or {}, path), *_validate_xml(xml, typed or {}, path.child(XML))]


def _validate_beside(xml: str, typed: Object, path: Path) -> list[FieldError]:
    text = "may not be set together with domainXML, which contains it"
    found = [forbidden(path.child(DOMAIN, each), text) for each in beside.foreign(typed)]
    if found:
        return found
    whole = copy.deepcopy(dict(described.domain_of({"spec": {DOMAIN: typed, XML: xml}})))
    if reading.problems_of(xml) and whole.get("firmware"):
        whole["firmware"].pop("persistentState", None)  # with invalid XML its purpose is unknown
    defaults.default_domain(whole)
    return [_placed(each, typed, path) for each in document.validate(whole, path.child(DOMAIN))]


def _placed(error: FieldError, typed: Object, path: Path) -> FieldError:
    """Return ``error``; if it concerns memory that the XML sets, with a path in the XML."""
    if error.path != str(path.child(DOMAIN, "memory", "guest")) or (typed.get("memory") or {}).get("guest") is not None:
        return error
    return forbidden(path.child(XML), f"/domain/memory: {error.detail}")


def _validate_xml(xml: str, typed: Object, path: Path) -> list[FieldError]:
    if problems := reading.problems_of(xml):
        return [invalid(path, _first_line(xml), str(each)) if each.is_syntax else _forbidden(each, path) for each in problems]
    with_defaults = given.with_devices(typed, "disks", disks.defaulted(typed))
    return [_forbidden(each, path) for each in beside.problems(*beside.read_document(xml), with_defaults)]


def _first_line(xml: str) -> str:
    return one_line(xml.strip().partition("\n")[0], MAX_SHOWN)


def _forbidden(problem: Problem, path: Path) -> FieldError:
    return forbidden(path, str(problem))
