"""One command for each published number, with results as JSON in ``build/bench``."""
