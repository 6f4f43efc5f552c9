"""Servers that speak OpenAI's HTTP API, such as vLLM, SGLang, NVIDIA Dynamo and NIM."""
