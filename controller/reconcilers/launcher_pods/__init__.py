"""The pods of virtual machines: the needs of each family of fields, and the pod made from all needs.

A family has the same name in each layer; see :mod:`apiserver.apis.virt.v1alpha1.domain`.
"""
