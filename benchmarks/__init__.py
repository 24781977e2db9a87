"""What the project claims in numbers, each by one command; results as JSON in ``build/bench``."""
