"""What a process tells of itself at /metrics is added up by the names of its series, and by their labels."""

from prometheus_client import CollectorRegistry, Counter, start_http_server

from lab.local_plane.process import HOST
from lab.local_plane.prometheus import counted


def test_series_are_added_up_over_all_that_have_the_labels() -> None:
    registry = CollectorRegistry()
    errors = Counter("errors", "Calls without an answer.", ["server", "how"], registry=registry)
    for name, how, number in (("one", "lost", 2), ("two", "lost", 3), ("two", "late", 5)):
        errors.labels(name, how).inc(number)
    Counter("others", "Something else.", registry=registry).inc(7)
    server, thread = start_http_server(0, HOST, registry)
    try:
        address = f"{HOST}:{server.server_port}"
        assert counted(address, "errors_total") == 10
        assert counted(address, "errors_total", how="lost") == 5
        assert counted(address, "errors_total", server="two", how="late") == 5
        assert counted(address, "errors_total", "others_total") == 17
        assert counted(address, "errors_total", how="busy") == 0
    finally:
        server.shutdown()
        thread.join()
