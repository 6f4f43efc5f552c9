"""The eviction policy as the process that runs next to an on-demand Triton."""

import os
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate_contracts import eviction_process, lease, triton
from tidegate_contracts.eviction import EvictionSettings
from tidegate_eviction.files import kept_secret

from .credentials import lease_token, write_cluster
from .process import HOST, Process, python_variables, replace_file, running
from .triton import Triton


@dataclass(frozen=True)
class Policy:
    """A running policy."""

    process: Process
    root: Path  # The directory with its settings, its secret and its state.
    lease_port: int
    admin_port: int
    host: str = HOST

    @property
    def leases(self) -> str:
        return f"{self.host}:{self.lease_port}"

    def listing(self) -> lease.Listing:
        """Return every model and their memory. Raises OSError."""
        request = urllib.request.Request(f"http://{self.leases}{lease.MODELS_PATH}")
        request.add_unredirected_header("authorization", f"Bearer {lease_token('lab')}")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as answer:
            return lease.Listing.model_validate_json(answer.read())

    @property
    def admin(self) -> str:
        return f"{self.host}:{self.admin_port}"


def triton_options(root: Path) -> list[str]:
    """Return the options of the Triton that a policy controls. Creates the control secret if necessary."""
    control = root / "control"
    control.mkdir(parents=True, exist_ok=True)
    secret = kept_secret(control / Path(eviction_process.CONTROL_SECRET_FILE).name)
    protocols = f"{','.join(triton.RESTRICTED_PROTOCOLS)}:{triton.RESTRICTED_KEY}={secret}"
    return [
        "--model-control-mode=explicit",
        "--exit-on-error=false",
        "--strict-readiness=false",
        f"--http-restricted-api={protocols}",
        f"--grpc-restricted-protocol={protocols}",
    ]


def write_settings(root: Path, settings: EvictionSettings) -> Path:
    """Write the settings where the policy reads them. The file is replaced atomically, as a ConfigMap is."""
    root.mkdir(parents=True, exist_ok=True)
    file = root / eviction_process.SETTINGS_FILE
    replace_file(file, settings.model_dump_json(by_alias=True))
    return file


@contextmanager
def policy(
    root: Path,
    server: Triton,
    ports: tuple[int, int] = (0, 0),
    options: Sequence[str] = (),
    packages: Sequence[str] = (),
) -> Iterator[Policy]:
    """Run the policy with the settings in `root` until the block ends. It listens at its server's address. `ports` are
    those of leases and admin, and 0 is any free port. `packages` are directories with custom policies."""
    environment = os.environ | python_variables("policies/eviction", "contracts", "service", *packages)
    command: list[str | Path] = [sys.executable, "-m", eviction_process.MODULE, "serve", "--host", server.host]
    write_cluster(root / "cluster")
    command += ["--root", root, "--server", server.grpc]
    command += ["--lease-port", str(ports[0]), "--admin-port", str(ports[1]), *options]
    log = root / "policy.log"
    with running("the eviction policy", command, log, environment) as process:
        if all(ports):
            process.wait_until(lambda: '"message":"serving"' in log.read_text("utf-8"))
            yield Policy(process, root, *ports, server.host)
        else:
            found = process.announced_ports()
            yield Policy(process, root, found["lease"], found["admin"], server.host)
