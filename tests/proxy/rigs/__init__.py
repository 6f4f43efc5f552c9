"""The real parts that the proxy is tried and measured with, started as processes of this machine.

Each is a context manager that ends what it started, by its process id, whatever happens in between.
"""
