"""Mutation tests of modules that decide and guard: each small change must fail a test.

``make mutants`` runs all, ``make mutants MODULES="power phases"`` a few. A survivor shows a missing test or an irrelevant change;
``survivors.toml`` lists the latter with reasons. The run fails on a survivor without a reason, and on an outdated entry.

cosmic-ray makes the changes (:mod:`.changes`). The tests run in forks of a process with all imports (:mod:`.worker`), which saves two
seconds per change.
"""
