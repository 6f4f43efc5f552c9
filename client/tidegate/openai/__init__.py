"""What `tidegate` knows of servers that speak OpenAI's API: entries of language models, and their golden requests."""
