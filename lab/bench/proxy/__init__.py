"""The proxy against common alternatives: `python -m lab.bench.proxy`."""
