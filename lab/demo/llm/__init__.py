"""What `make demo-llm` shows: language models behind the proxy, served by a real NVIDIA Dynamo that needs no GPU."""
