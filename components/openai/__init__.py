"""The components of servers with the OpenAI HTTP API."""
