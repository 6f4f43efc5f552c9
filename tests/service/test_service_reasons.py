import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_service.reasons import MOST, plain

RAISED = "ImportError: no module named x"
TRACEBACK = f"""Traceback (most recent call last):
  File "/models/m/1/model.py", line 3, in <module>
    import x

{RAISED}"""


@pytest.mark.parametrize(
    ("text", "plain_text"),
    [
        (f"{RAISED} in /models/m/1/model.py\n\nAt:\n  /models/m/1/model.py(1): <module>\n", f"{RAISED} in model.py"),
        (f"failed: {TRACEBACK}", f"failed: {RAISED}"),
        ("failed to load 's3://bucket/key/model.onnx': bad", "failed to load 'model.onnx': bad"),
        ("failed to stat /models/fraud/, /secret and //a//b/", "failed to stat fraud, secret and b"),
        ("cannot open file:///models/a/b.plan", "cannot open b.plan"),
        ("failed to stat s3://10.0.0.5:9000/team-a/models/m/config.pbtxt: no", "failed to stat config.pbtxt: no"),
        ("cannot read s3://https://minio.example.com:9000/models/fraud/1/model.onnx.", "cannot read model.onnx."),
        ("GET https://example.com/b/m.onnx?X-Amz-Signature=abcd/e failed", "GET m.onnx failed"),
        ("s3://AKIA:SECRET@host/b/k, s3://AKIA:SECRET@host", "k, host"),
        ("open '/mnt/team a/models/x.bin': no", "open 'x.bin': no"),
        ("Traceback (most recent call last)\n" + "  File 'a', line 1\n" * 200 + RAISED, RAISED),
        ("Traceback (most recent call last)", "Traceback (most recent call last)"),
        ("a/b of 1 / 2, ./c and 5 ms/call", "a/b of 1 / 2, ./c and 5 ms/call"),
        ("unexpected shape [-1,3],\n  got [3]", "unexpected shape [-1,3], got [3]"),
    ],
)  # fmt: skip
def test_invalid_reasons_stay_unchanged(text: str, plain_text: str) -> None:
    assert plain(text) == plain_text


@given(st.text() | st.text().map(lambda text: 90 * text))
def test_it_is_one_short_line(text: str) -> None:
    plain_text = plain(text)
    assert len(plain_text) <= MOST
    assert len(plain_text.splitlines()) < 2
    assert plain_text == plain(plain_text) or "…" in plain_text or "/" in text


@pytest.mark.parametrize("piece", ["\n", " ", "/", "a", "a/", "://", "\nAt:", "Traceback (most recent call last)\n "])
def test_a_megabyte_of_text_is_shortened(piece: str) -> None:
    """A backtracking pattern would take hours."""
    assert len(plain(piece * 1_000_000)) <= MOST
