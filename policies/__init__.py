"""Policies: what may stay in GPU memory (eviction), and what no stack may do (guardrails)."""
