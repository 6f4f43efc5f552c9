"""One replica of a server: its HTTP/1.1 connections, requests over them, its health check and its circuit breaker."""
