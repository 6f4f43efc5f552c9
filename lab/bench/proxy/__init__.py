"""The proxy against what people put there today: `python -m lab.bench.proxy`."""
