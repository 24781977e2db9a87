"""The storage port over etcd (3.5.13 or later; earlier ones answer progress requests incorrectly).

``store`` implements the port, ``watching`` a reconnecting watch; ``connection`` selects an endpoint and reloads
certificates, ``failures`` translates errors, ``rpc`` has the messages, sent by :mod:`storage.grpc`.
"""
