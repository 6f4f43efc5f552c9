"""The whole data plane on one machine, with a zoo of small models: `python -m demo walk` and `python -m demo up`."""
