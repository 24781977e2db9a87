"""Admission webhooks (``k8s.io/apiserver/pkg/admission/plugin/webhook``).

``registrations`` parses configurations, ``source`` indexes them, ``plugin`` selects webhooks, ``review`` encodes
reviews, ``calling`` sends them.
"""
