"""Tests of the contracts between the parts."""
