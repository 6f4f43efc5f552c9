"""Tests with Pulumi's real engine and Kubernetes provider, if they are installed."""
