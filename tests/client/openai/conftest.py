"""A real S3, as repositories of every kind are published to."""

from tests.client.triton.publishing.conftest import minio, url

__all__ = ["minio", "url"]
