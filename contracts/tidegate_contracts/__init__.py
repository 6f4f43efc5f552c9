"""The words that Tidegate's parts exchange, and nothing else.

`triton` is what everybody needs to know of a Triton process, `proxy_process` and `eviction_process` fix how the two
containers of the project are started, reached and probed, `routing` is the table that the proxy follows, and `eviction`
what an eviction policy is told.
"""
