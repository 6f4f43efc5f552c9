"""The inference proxy: its image, its certificate, and sizes in bytes."""

from typing import assert_never

from components.proxy_args import ProxyArgs, TlsArgs
from stacks.definition.proxy import PROXY

from ..definition import proxy as definition
from ..definition.base import byte_count, extended
from ..definition.images import PROXY_IMAGE
from ..images_lock import ImagesLock
from ..stack import Stack
from .images import image_reference

CERTIFICATE_SECRET = f"{PROXY}-tls"


def proxy(stack: Stack, lock: ImagesLock) -> ProxyArgs:
    """Return the arguments of the environment's proxy."""
    settings = stack.platform.proxy
    return extended(
        ProxyArgs,
        settings,
        image=image_reference(stack, lock, PROXY_IMAGE),
        replicas=settings.replicas or definition.REPLICAS,
        tls=_tls(settings.tls),
        body_limit_bytes=byte_count(settings.body_limit),
    )


def _tls(tls: definition.ProxyTls | None) -> TlsArgs | None:
    match tls:
        case definition.SecretTls():
            return TlsArgs(secret=tls.secret)
        case definition.CertManagerTls():
            issuer = extended(definition.CertificateIssuer, tls)
            return TlsArgs(secret=CERTIFICATE_SECRET, certificate=issuer)
        case None:
            return None
        case _:
            assert_never(tls)
