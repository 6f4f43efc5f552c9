"""One replica of an inference server: its HTTP/1.1 connections, requests over them, and its circuit breaker."""
