"""The pods of virtual machines: the sum of what each family of fields requires.

A family has the same name in each layer; see :mod:`apiserver.apis.virt.v1alpha1.domain`.
"""
