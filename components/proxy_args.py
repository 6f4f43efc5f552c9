"""The proxy's arguments: what the definition says of it, and what resolving adds."""

from typing import Annotated

from pydantic import Field

from stacks.definition.base import ObjectName, Section, byte_count
from stacks.definition.proxy import REPLICAS, CertificateIssuer
from stacks.definition.proxy import Proxy as ProxySettings

from .fields import Bytes, ImageReference


class TlsArgs(Section):
    """The certificate that the proxy serves HTTPS with."""

    secret: ObjectName
    """Secret of type kubernetes.io/tls in the environment's namespace."""
    certificate: CertificateIssuer | None = None
    """Issuer that writes the secret; it is there already without one."""


class ProxyArgs(ProxySettings):
    """The inference proxy: the one door to every model."""

    image: ImageReference
    """Its image."""
    replicas: Annotated[int, Field(ge=1, le=1000)] = REPLICAS
    """How many; without effect where an autoscaler owns the number."""
    tls: TlsArgs | None = None  # type: ignore[assignment]
    """Certificate it serves HTTPS with; plain HTTP without one."""
    body_limit_bytes: Bytes = byte_count(ProxySettings().body_limit)
    """Largest request body."""
