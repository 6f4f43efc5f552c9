"""Copies of requests for a candidate version, whose answers are dropped: no caller waits for any of it."""
