"""A real S3: MinIO on loopback, with generated credentials and its buckets in a directory."""

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
    """A running MinIO."""

    process: Process
    port: int
    access_key: str
    secret_key: str = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that give boto3, obstore and MLflow full access to it."""
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
        """Return boto3's client of a service: `s3`, or `sts` for credentials that expire."""
        import boto3  # Imported here because it is slow, and most users of a MinIO do not need it.

        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )

    def make_bucket(self, name: str) -> str:
        """Create a bucket, and return its URL, `s3://name`."""
        self.client().create_bucket(Bucket=name)
        return f"s3://{name}"


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Run a MinIO with its buckets in a directory until the block ends. If this machine has none yet, it is built,
    which takes minutes. Raises CannotBeHadError if that fails."""
    program = had("MinIO", tools.path, "minio")
    folder.mkdir(parents=True, exist_ok=True)
    user, password = "tidegate", secrets.token_urlsafe(24)
    environment = os.environ | {
        "HOME": str(folder),  # MinIO reads certificates and settings there.
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
