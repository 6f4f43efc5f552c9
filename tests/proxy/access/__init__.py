"""Tests of who callers are, and what they may do."""
