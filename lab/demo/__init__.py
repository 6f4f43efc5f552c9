"""The whole data plane on one machine, with small models: `python -m lab.demo walk` and `python -m lab.demo up`."""
