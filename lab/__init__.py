"""What shows, measures and tests the platform on one machine: local clusters and planes, demos, benchmarks, tools."""
