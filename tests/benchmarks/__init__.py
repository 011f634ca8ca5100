"""Figures of the product, as ratios measured in turn: ``python -m tests.benchmarks``."""
