import pytest


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate_proxy.residency.table.LOOK_SECONDS", 0.02)
    monkeypatch.setattr("tidegate_proxy.residency.table.AGAIN_SECONDS", 0.1)
