"""Admission webhooks: mutating ones in order, validating ones in parallel, as ``k8s.io/apiserver/pkg/admission/plugin/webhook`` does it.

``registrations`` reads configurations into frozen values, ``source`` keeps an index of them, ``selecting`` decides whether one is to be
asked, ``review`` is what is said on the wire, ``calling`` says it, ``mutating`` and ``validating`` are the plug-ins.
"""
