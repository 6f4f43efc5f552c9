"""Demos of the data plane on one machine, with small models: `python -m lab.demo walk`, `python -m lab.demo up`."""
