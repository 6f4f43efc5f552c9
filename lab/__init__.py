"""The platform on one machine: local clusters and data planes, demos, benchmarks, tools, and the site of the docs."""
