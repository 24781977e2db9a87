"""Mutation tests of the modules that decide and guard: each small change of a module must fail its tests.

``make mutants`` runs all, ``make mutants MODULES="power phases"`` a few. A survivor shows a missing test or an irrelevant change;
``survivors.toml`` lists the latter with reasons. The run fails on a survivor without a reason, and on an outdated entry.

cosmic-ray makes the changes (:mod:`.changes`) but does not run the tests. A process per change would spend two seconds on imports; a fork
of a process with all imports needs a fraction of that (:mod:`.worker`).
"""
