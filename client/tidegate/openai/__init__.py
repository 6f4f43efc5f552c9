"""Servers of OpenAI's API: entries of language models, and their golden requests."""
