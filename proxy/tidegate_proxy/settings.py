"""The settings of one proxy, typed, from the environment, a wrong one told in one line; and where its files lie."""

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from tidegate_contracts import proxy_process
from tidegate_contracts.proxy_settings import ProxySettings, variable


@dataclass(frozen=True)
class Layout:
    """Where a proxy finds its files, and where it listens: as the contract has it by default.

    A port of 0 is any free one, and no host is every address.
    """

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
    """Says which settings are wrong, a line each."""


def read_settings() -> ProxySettings:
    """Return the settings; raise SettingsError naming every variable that is wrong, missing or unknown."""
    names = {variable(field): field for field in ProxySettings.model_fields}
    given = {name: value for name, value in os.environ.items() if name.startswith(proxy_process.ENVIRONMENT_PREFIX)}
    problems = [f"{name} is no setting; `python -m tidegate_proxy --help` lists them" for name in given.keys() - names]
    try:
        settings = ProxySettings.model_validate({names[name]: value for name, value in given.items() if name in names})
    except ValidationError as error:
        for each in error.errors():
            why = "it is missing" if each["type"] == "missing" else each["msg"]
            problems.append(f"{variable(str(each['loc'][0]))}: {why}")
    if problems:
        raise SettingsError("\n".join(sorted(problems)))
    return settings
