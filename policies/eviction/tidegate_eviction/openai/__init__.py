"""What the policy knows of servers of OpenAI's API: models of vLLM that share a slice, and sleep by turns."""
