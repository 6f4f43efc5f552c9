"""gRPC: the same calls, decisions and answers as over HTTP.

Messages pass as the frames that carry them come; of a message only the fields that say what is asked are read.
"""
