"""The storage port over etcd (3.5.13 or later; earlier ones answer progress requests wrongly).

``store`` keeps the promises of the port, ``watching`` is one watch with its reconnections, ``connection`` picks an endpoint and
re-reads certificates, ``failures`` translates what calls fail with, ``rpc`` holds the messages, :mod:`storage.grpc` carries them.
"""
