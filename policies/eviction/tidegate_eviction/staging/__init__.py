"""Files near the server: what a load reads is copied beforehand into a bounded folder, and stays there while it may."""
