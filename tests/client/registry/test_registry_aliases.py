"""An environment's name must be a valid alias in MLflow, which is checked before anything is published."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from mlflow.exceptions import MlflowException
from mlflow.utils import validation
from tidegate_contracts.environments import is_alias

ALIAS: Any = validation

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
ODD = st.sampled_from(["latest", "LATEST", "v2", "V13", "v", "v2x", "latest2", "prod", "a.b", "a/b", "", "x" * 256])


@given(name=NAMES | ODD | st.text(st.characters(codec="ascii"), max_size=6).filter(lambda text: "\n" not in text))
def test_aliases_are_valid_if_mlflow_accepts_them(name: str) -> None:
    try:
        ALIAS._validate_model_alias_name(name)
        ALIAS._validate_model_alias_name_reserved(name)
    except MlflowException:
        assert not is_alias(name)
    else:
        assert is_alias(name)
