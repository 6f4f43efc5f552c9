"""Tests of the site of the documentation."""
