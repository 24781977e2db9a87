"""Policies as data: ``ValidatingAdmissionPolicy`` and ``MutatingAdmissionPolicy``, whose expressions are CEL.

Source: ``k8s.io/apiserver/pkg/admission/plugin/policy`` and ``plugin/cel``, KEP-3488 and KEP-3962.
"""
