"""The pods of virtual machines: what each family of fields needs of its pod, and the pod made of all needs.

A family has the same name in every layer; see :mod:`apiserver.apis.virt.v1alpha1.domain`.
"""
