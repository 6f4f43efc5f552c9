"""Leases and placement over real HTTP, with policies that keep the contract and fail on command."""
