"""The guardrails: tests break every rule, and nearly break it."""
