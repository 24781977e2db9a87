"""Certificates of the release and of its nodes.

- ``certificate_plan``, ``rotate_certificates``: plan and loop of the release's authorities and Secrets.
- ``consumers``: the other objects with a copy of the trusted authorities.
- ``node_certificate_plan``, ``node_certificates``: plan and loop of virt-handlers' certificate requests.

These loops use only the core API, because virt-api waits for its certificate.
"""
