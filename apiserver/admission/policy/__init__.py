"""Policies with CEL expressions: ``ValidatingAdmissionPolicy`` and ``MutatingAdmissionPolicy``.

Source: ``k8s.io/apiserver/pkg/admission/plugin/policy`` and ``plugin/cel``, KEP-3488 and KEP-3962.
"""
