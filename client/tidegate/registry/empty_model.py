"""The empty MLflow model of a registered version. MLflow runs this file if someone loads the version by mistake."""

import mlflow
from mlflow.pyfunc.model import PythonModel


class RegisteredEntry(PythonModel):  # type: ignore[misc, unused-ignore]  # mlflow has no types
    """Represents an entry that an inference server runs. Calls raise an error that names the client model."""

    # Without type hints: MLflow would check them, and warn.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        raise NotImplementedError(
            "this version is a model for an inference server: deploy it with `tidegate deploy`, and call it through "
            "its client model, whose name ends with `-client`"
        )


mlflow.models.set_model(RegisteredEntry())
