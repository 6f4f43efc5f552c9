"""Tests that run Pulumi's real engine and Kubernetes provider, wherever they can be found."""
