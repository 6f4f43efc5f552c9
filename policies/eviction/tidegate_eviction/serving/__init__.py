"""What the policy shows: leases to proxies; probes and metrics; its settings and what it learned."""
