"""The typed settings of a proxy, from environment variables, and the paths of its files."""

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from tidegate_contracts import proxy_process
from tidegate_contracts.proxy_settings import ProxySettings, variable


@dataclass(frozen=True)
class Layout:
    """A proxy's directories and addresses, by default the contract's. Port 0 is any free one, host "" all addresses."""

    routing: Path = Path(proxy_process.ROUTING_ROOT)
    tls: Path = Path(proxy_process.TLS_ROOT)
    api_keys: Path = Path(proxy_process.API_KEYS_ROOT)
    authorities: Path = Path(proxy_process.AUTHORITIES_ROOT)
    upstream_ca: Path = Path(proxy_process.UPSTREAM_CA_ROOT)
    host: str = ""
    http_port: int = proxy_process.HTTP_PORT
    grpc_port: int = proxy_process.GRPC_PORT
    admin_port: int = proxy_process.ADMIN_PORT
    leases: Path = Path(proxy_process.LEASE_TOKEN_ROOT)


class SettingsError(Exception):
    """Some settings are invalid. The text names one a line."""


def read_settings() -> ProxySettings:
    """Return the settings. Raises SettingsError, which names every invalid, missing or unknown variable."""
    names = {variable(field): field for field in ProxySettings.model_fields}
    given = {name: value for name, value in os.environ.items() if name.startswith(proxy_process.ENVIRONMENT_PREFIX)}
    unknown = given.keys() - names
    problems = [f"{name} is not a setting. Run `python -m tidegate_proxy --help` to list them" for name in unknown]
    try:
        settings = ProxySettings.model_validate({names[name]: value for name, value in given.items() if name in names})
    except ValidationError as error:
        for each in error.errors():
            why = "it is missing" if each["type"] == "missing" else each["msg"]
            problems.append(f"{variable(str(each['loc'][0]))}: {why}")
    if problems:
        raise SettingsError("\n".join(sorted(problems)))
    return settings
