"""Mutation tests of the modules that decide and guard: each is changed in one small place at a time, and its tests have to notice.

``make mutants`` runs them all, ``make mutants MODULES="power phases"`` a few. What survives is either a test that is missing, or a change
that cannot matter; the latter stands in ``survivors.toml`` with the reason. The run fails on a survivor without a reason, and on an entry
that is no longer true.

The changes are cosmic-ray's (:mod:`.changes`). It is not cosmic-ray that runs the tests: a process a change spends two seconds on imports
before the first test begins, where a fork of one that has imported everything else needs a fraction of it (:mod:`.worker`).
"""
