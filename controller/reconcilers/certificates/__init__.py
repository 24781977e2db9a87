"""Certificates of the release and of its nodes: the loops that keep them good, and what they are decided by.

``certificate_plan`` and ``rotate_certificates`` are plan and loop of the release's authorities and Secrets, ``consumers`` those who have a
copy of what is believed; ``node_certificate_plan`` and ``node_certificates`` are plan and loop of the certificates that virt-handlers ask
for. These loops need the core API alone: virt-api waits for its certificate, so nothing here may wait for virt-api.
"""
