"""What goes wrong below is told in words that help, and with nothing secret."""

import errno
import os

import pytest
from tidegate.errors import RefusedError, TidegateError, UnfinishedError, UnreachableError
from tidegate.publishing.faults import explained, of_store

WHERE = "/mnt/models"


@pytest.mark.parametrize(
    ("number", "kind", "do"),
    [
        (errno.ENOSPC, UnfinishedError, "tidegate prune"),
        (errno.EDQUOT, UnfinishedError, "tidegate prune"),
        (errno.ESTALE, UnreachableError, "run the same command again"),
        (errno.EIO, UnreachableError, "run the same command again"),
        (errno.ETIMEDOUT, UnreachableError, "run the same command again"),
        (errno.EACCES, RefusedError, "ask whoever owns the volume"),
        (errno.EROFS, RefusedError, "ask whoever owns the volume"),
        (errno.EXDEV, RefusedError, "a folder of its own"),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_errors_of_files_say_where_why_and_what_to_do(number: int, kind: type[TidegateError], do: str) -> None:
    with pytest.raises(kind, match=do) as told, explained(WHERE):
        raise OSError(number, os.strerror(number), "m/1/model.py")
    assert str(told.value).startswith(f"{WHERE}: ")
    assert f"{os.strerror(number)} (m/1/model.py)" in str(told.value)


EXPIRED = """Generic S3 error: Error performing GET http://minio/models in 3ms - Server returned non-2xx status code: \
400 Bad Request: <?xml version="1.0"?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.\
</Message><Token-0>FwoGZXIvYXdzEA</Token-0><StringToSign>AWS4-HMAC</StringToSign></Error>"""


def test_of_what_an_s3_answers_only_its_code_and_message_are_shown() -> None:
    told = of_store(Exception(EXPIRED), "s3://models/prod")
    assert isinstance(told, RefusedError)
    assert "ExpiredToken: The provided token has expired." in str(told)
    assert "renew the credentials" in str(told)
    assert "FwoGZXIvYXdzEA" not in str(told)
    assert "AWS4-HMAC" not in str(told)


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("… status code: 403 Forbidden: <html>", RefusedError, "403 Forbidden"),
        ("… status code: 503 Slow Down", UnreachableError, "503 Slow Down"),
        ("secret=hunter2 connection refused", UnreachableError, "Exception"),
    ],
)
def test_other_stores_are_told_by_their_status(text: str, kind: type[TidegateError], why: str) -> None:
    told = of_store(Exception(text), "gs://models/prod")
    assert isinstance(told, kind)
    assert f"why: {why}\n" in str(told)
    assert "hunter2" not in str(told)
