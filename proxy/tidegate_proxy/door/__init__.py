"""HTTP: callers' connections, what they ask for, and the exchange of one request for one answer."""
