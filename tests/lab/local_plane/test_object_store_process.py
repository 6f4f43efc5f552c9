"""The S3 of the rigs is a real one: it keeps what it has, and lets nobody in without its key."""

from pathlib import Path

import boto3
import obstore
import pytest
from obstore.store import from_url

from lab.local_plane.object_store import REGION, object_store
from lab.local_plane.process import listens
from tests.proxy.rigs.pytest_rigs import not_run


def test_it_is_found_by_its_variables_and_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with not_run("A REAL S3"), object_store(tmp_path) as store:
        bucket = store.make_bucket("models")
        for name, value in store.variables.items():
            monkeypatch.setenv(name, value)
        obstore.put(from_url(bucket), "a/b", b"content")
        assert boto3.client("s3").get_object(Bucket="models", Key="a/b")["Body"].read() == b"content"
        stranger = boto3.client("s3", aws_access_key_id="somebody", aws_secret_access_key="else")
        with pytest.raises(stranger.exceptions.ClientError, match="InvalidAccessKeyId"):
            stranger.list_buckets()
        assert store.secret_key not in repr(store)
    assert not listens(store.port)
    with object_store(tmp_path, port=store.port) as again:
        assert again.secret_key == store.secret_key
        assert again.client().get_object(Bucket="models", Key="a/b")["Body"].read() == b"content"


def test_it_gives_credentials_that_expire(tmp_path: Path) -> None:
    with not_run("A REAL S3"), object_store(tmp_path) as store:
        store.make_bucket("models")
        given = store.client("sts").assume_role(
            RoleArn="arn:aws:iam::1:role/any", RoleSessionName="test", DurationSeconds=900
        )
        keys = given["Credentials"]
        client = boto3.client(
            "s3", endpoint_url=store.url, region_name=REGION, aws_access_key_id=keys["AccessKeyId"],
            aws_secret_access_key=keys["SecretAccessKey"], aws_session_token=keys["SessionToken"],
        )  # fmt: skip
        assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["models"]
