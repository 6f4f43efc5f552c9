"""Tests of the words that the parts exchange."""
