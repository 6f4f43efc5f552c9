"""What the components know of servers that speak OpenAI's HTTP API."""
