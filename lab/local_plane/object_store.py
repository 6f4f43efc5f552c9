"""A real S3: MinIO on loopback, with credentials of its own and its buckets in a folder."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import tools

from .process import HOST, Process, answers, free_ports, had, running

REGION = "us-east-1"


@dataclass(frozen=True)
class ObjectStore:
    """A MinIO that runs."""

    process: Process
    port: int
    access_key: str
    secret_key: str = field(repr=False)

    @property
    def url(self) -> str:
        """Address of its S3 API."""
        return f"http://{HOST}:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables by which boto3, obstore and MLflow find it and may do everything there."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "MLFLOW_S3_ENDPOINT_URL": self.url,
        }

    def client(self, service: str = "s3") -> Any:
        """Return boto3's client of one of its services: `s3`, or `sts` for credentials that expire."""
        import boto3  # here, for it takes a while and most users of a MinIO never ask

        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )

    def make_bucket(self, name: str) -> str:
        """Make a bucket; return its URL, `s3://name`."""
        self.client().create_bucket(Bucket=name)
        return f"s3://{name}"


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Run a MinIO whose buckets lie in a folder; it is ready, and it ends with the block.

    It is built when this machine has none yet, which takes minutes; raises CannotBeHadError where it cannot be.
    """
    program = had("MinIO", tools.path, "minio")
    folder.mkdir(parents=True, exist_ok=True)
    user, password = "tidegate", secrets.token_urlsafe(24)
    environment = os.environ | {
        "HOME": str(folder),  # where it looks for certificates and settings
        "MINIO_ROOT_USER": user,
        "MINIO_ROOT_PASSWORD": password,
        "MINIO_REGION": REGION,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    [port] = free_ports(1)
    command: list[str | Path] = [program, "server", "--quiet", "--address", f"{HOST}:{port}", folder / "buckets"]
    with running("MinIO", command, folder / "minio.log", environment) as process:
        process.wait_until(lambda: answers(port, "/minio/health/ready"))
        yield ObjectStore(process, port, user, password)
