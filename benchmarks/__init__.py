"""Benchmarks: the numbers that the project states, each by one command; results as JSON in ``build/bench``."""
