"""Which models there are, where, which versions answer, and how much they are used: asked of the proxies."""
