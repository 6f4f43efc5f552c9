"""What the policy shows: leases to proxies; probes, metrics and a page to people; its settings and what it learned."""
