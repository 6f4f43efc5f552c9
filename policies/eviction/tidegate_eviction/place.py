"""Where a policy finds its files and its Triton, and where it listens."""

from dataclasses import dataclass
from pathlib import Path

from tidegate_contracts import eviction_process, triton


@dataclass(frozen=True)
class Place:
    """The contract's by default; a port of 0 is any free one, and no host is every address."""

    settings: Path = Path(eviction_process.SETTINGS_ROOT, eviction_process.SETTINGS_FILE)
    control: Path = Path(eviction_process.CONTROL_ROOT)
    state: Path = Path(eviction_process.STATE_ROOT)
    tls: Path = Path(triton.TLS_ROOT)
    host: str = ""
    lease_port: int = eviction_process.LEASE_PORT
    admin_port: int = eviction_process.ADMIN_PORT
    triton_address: str = f"127.0.0.1:{triton.GRPC_PORT}"
    metrics_url: str = f"http://127.0.0.1:{triton.METRICS_PORT}{triton.METRICS_PATH}"
    drain_seconds: float = 30.0
    """How long leases may end in after SIGTERM."""

    @property
    def secret(self) -> Path:
        """The file with the control secret."""
        return self.control / Path(eviction_process.CONTROL_SECRET_FILE).name

    @property
    def recycle(self) -> Path:
        """The file that asks for a restart of Triton."""
        return self.control / Path(eviction_process.RECYCLE_FILE).name
