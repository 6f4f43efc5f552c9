"""The guardrails: every rule is broken by a test and nearly broken by another."""
