"""Mutation tests of modules that decide and guard: each small change must fail a test.

A survivor shows a missing test or an irrelevant change; ``survivors.toml`` lists the latter with reasons.
"""
