"""Leases and placement, against policies that keep the contract and fail as they are told, over real HTTP."""
