"""Certificates of the release and of its nodes.

``certificate_plan`` and ``rotate_certificates`` are plan and loop of the release's certificates, ``node_certificate_plan`` and
``node_certificates`` those of virt-handlers'.
"""
