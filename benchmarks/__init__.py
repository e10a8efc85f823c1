"""Benchmarks of hermes_state against the reference store, run as ``python -m benchmarks.<name>``."""
