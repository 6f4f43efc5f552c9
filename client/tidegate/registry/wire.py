"""HTTP to MLflow's server as MLflow's own client speaks it: credentials, certificates, headers of plug-ins, tries."""

from typing import Any


def request(base: str, endpoint: str, method: str, **options: Any) -> Any:
    """Return the answer, a `requests.Response`, whatever its status is.

    `base` is the server's address and `endpoint` what comes after it; options are those of MLflow's `http_request`.
    Raises MlflowException where nothing answers.
    """
    from mlflow.utils import credentials, rest_utils

    ask: Any = rest_utils.http_request
    known: Any = credentials.get_default_host_creds
    return ask(known(base), endpoint, method, raise_on_status=False, **options)
