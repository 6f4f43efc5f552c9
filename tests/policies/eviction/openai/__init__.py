"""Models of vLLM that share a slice: the driver, and a stand-in for vLLM. No vLLM and no GPU are run here."""
