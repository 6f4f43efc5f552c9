"""Tests of the proxy's connections to replicas."""
