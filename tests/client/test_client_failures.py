import base64
import errno
import os
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate import errors
from tidegate.failures import explained, from_status, of_store, scrubbed, shown, translated


@given(st.text("abcXYZ019-_.~!$&'()*+,;=:%@", min_size=1, max_size=20), st.text("abc019-_=&%/?'\")", max_size=20))
def test_no_name_password_or_query_of_a_url_is_shown(secret: str, query: str) -> None:
    url = f"https://u{secret}:p{secret}@mlflow.example.com:8443/path?X-Amz-Signature=q{query}#f"
    assert shown(url) == "https://mlflow.example.com:8443/path"
    plain = "https://mlflow.example.com:8443/path"
    assert scrubbed(f"cannot reach '{url}' and then <{url}>") == f"cannot reach '{plain} and then <{plain}"


@pytest.mark.parametrize(
    ("url", "what_is_shown"),
    [
        ("http://u:p4ss@[::1", "http://[::1"),
        ("u:p4ss@mlflow.example.com/path", "mlflow.example.com/path"),
        ("http://u:p4ss@a b:x/path?p4ss", "http://a b:x/path"),
        ("sqlite:////srv/a@b.db", "sqlite:////srv/a@b.db"),
        ("models:/churn@champion", "models:/churn@champion"),
    ],
)
def test_a_malformed_url_is_shown_without_secrets(url: str, what_is_shown: str) -> None:
    assert shown(url) == what_is_shown


def test_no_value_of_a_secret_variable_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken-value")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws/secret")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
    message = scrubbed("Bearer t0ken-value was refused, and aws/secret too.\n Look at /var/run/token" + "x" * 999)
    assert message.startswith("Bearer *** was refused, and *** too. Look at /var/run/token")
    assert len(message) < 420


@pytest.mark.parametrize("token", ["PWsecret99\n", "PWsecret99\nPWother88", "PW'secret\"99", "PW secret/99+"])
def test_no_secret_is_shown_in_another_form(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "anna")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", token)
    basic = base64.b64encode(f"anna:{token}".encode()).decode()
    header = f"Invalid leading whitespace in header value: {f'Bearer {token}'!r}"
    for message in (header, f"/{quote(token)}/", f"Basic {basic}", *token.splitlines()):
        shown = scrubbed(message)
        assert "***" in shown
        assert not any(word in shown for word in ("secret", "other", basic))


def test_a_query_is_hidden_if_the_host_is() -> None:
    message = "Max retries exceeded with url: /?token=PWsecret/api/2.0/mlflow (Caused by it)"
    assert scrubbed(message) == "Max retries exceeded with url: / (Caused by it)"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, errors.UsageError), (401, errors.RefusedError), (403, errors.RefusedError), (404, errors.NotFoundError),
        (413, errors.UsageError), (429, errors.BusyError), (500, errors.UnreachableError), (503, errors.BusyError),
        (502, errors.UnreachableError), (599, errors.UnreachableError),
    ],
)  # fmt: skip
def test_a_status_is_the_error_that_people_know(status: int, error: type[errors.TidegateError]) -> None:
    made = from_status(status, "it cannot be read", "there", "so it is")
    assert (type(made), made.where) == (error, "there")
    assert f"HTTP {status}" in made.why
    assert "so it is" in made.why


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("RESOURCE_DOES_NOT_EXIST", errors.NotFoundError),
        ("PERMISSION_DENIED", errors.RefusedError),
        ("UNAUTHENTICATED", errors.RefusedError),
        ("INVALID_PARAMETER_VALUE", errors.UsageError),
        ("INTERNAL_ERROR", errors.UnreachableError),  # the default without a code
    ],
)
def test_errors_of_mlflow_are_translated(code: str, error: type[errors.TidegateError]) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import ErrorCode

    with pytest.raises(error, match="it cannot be read"), translated("it cannot be read", "there"):
        raise MlflowException("no", error_code=ErrorCode.Value(code))


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ConnectionResetError("reset"), errors.UnreachableError),
        (ValueError("could not convert 'abc' for MLFLOW_HTTP_REQUEST_TIMEOUT"), errors.UsageError),
    ],
)
def test_errors_of_libraries_are_translated(raised: Exception, error: type[errors.TidegateError]) -> None:
    with pytest.raises(error, match="it cannot be read"), translated("it cannot be read", "there"):
        raise raised


def test_our_own_errors_pass_as_they_are() -> None:
    with pytest.raises(errors.BusyError, match=r"^busy$"), translated("it cannot be read", "there"):
        raise errors.BusyError("busy")


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("HTTPConnectionPool(host='127.0.0.1', port=1): Max retries exceeded with url: /api/2.0/mlflow (Caused by "
         "NewConnectionError('<urllib3.connection.HTTPConnection object at 0x7f>: Failed to establish a connection: "
         "[Errno 111] Connection refused'))", "no server listens there"),
        ("Max retries exceeded (Caused by NameResolutionError(\"<urllib3 object at 0x7f>: Failed to resolve 'x'\"))",
         "the host name cannot be resolved"),
        ("Read timed out. (read timeout=5)", "timed out"),
        ("('Connection aborted.', RemoteDisconnected('Remote end closed connection'))",
         "the connection was interrupted"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))",
         "its certificate is not trusted"),
    ],
    ids=["refused", "name", "time", "cut", "certificate"],
)  # fmt: skip
def test_reasons_of_failed_connections_are_in_plain_words(message: str, plain: str) -> None:
    with pytest.raises(errors.UnreachableError) as caught, translated("it cannot be read", "there"):
        raise ConnectionError(message)
    assert plain in caught.value.why
    assert "object at" not in str(caught.value)


WHERE = "/mnt/models"


@pytest.mark.parametrize(
    ("number", "kind", "do"),
    [
        *((number, errors.UnfinishedError, "tidegate prune") for number in (errno.ENOSPC, errno.EDQUOT)),
        *((number, errors.UnreachableError, "run the same") for number in (errno.ESTALE, errno.EIO, errno.ETIMEDOUT)),
        *((number, errors.RefusedError, "the owner of the volume") for number in (errno.EACCES, errno.EROFS)),
        (errno.EXDEV, errors.RefusedError, "a subdirectory of the dataset"),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_errors_of_files_have_place_reason_and_remedy(number: int, kind: type[errors.TidegateError], do: str) -> None:
    with pytest.raises(kind, match=do) as error, explained(WHERE):
        raise OSError(number, os.strerror(number), "m/1/model.py")
    assert str(error.value).startswith(f"{WHERE}: ")
    assert f"{os.strerror(number)} (m/1/model.py)" in str(error.value)


EXPIRED = """Generic S3 error: Error performing GET http://minio/models in 3ms - Server returned non-2xx status code: \
400 Bad Request: <?xml version="1.0"?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.\
</Message><Token-0>FwoGZXIvYXdzEA</Token-0><StringToSign>AWS4-HMAC</StringToSign></Error>"""


def test_only_the_code_and_message_of_an_s3_error_are_shown() -> None:
    error = of_store(Exception(EXPIRED), "s3://models/prod")
    assert isinstance(error, errors.RefusedError)
    assert (error.why, error.do[:21]) == ("ExpiredToken: The provided token has expired.", "renew the credentials")
    assert not any(secret in str(error) for secret in ("FwoGZXIvYXdzEA", "AWS4-HMAC"))


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("… status code: 403 Forbidden: <html>", errors.RefusedError, "403 Forbidden"),
        ("… status code: 503 Slow Down", errors.UnreachableError, "503 Slow Down"),
        ("secret=hunter2 connection refused", errors.UnreachableError, "Exception"),
    ],
)
def test_other_stores_are_recognised_by_their_status(text: str, kind: type[errors.TidegateError], why: str) -> None:
    error = of_store(Exception(text), "gs://models/prod")
    assert isinstance(error, kind)
    assert f"why: {why}\n" in str(error)
    assert "hunter2" not in str(error)
