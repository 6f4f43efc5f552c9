"""The empty model that a registered version is for MLflow, which runs this file where it is loaded by mistake."""

import mlflow
from mlflow.pyfunc.model import PythonModel


class RegisteredEntry(PythonModel):  # type: ignore[misc, unused-ignore]  # mlflow has no types
    """Stands in MLflow for an entry that an inference server runs; calling it raises."""

    # Without type hints: MLflow would check them, and warn.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """Say which model is to be called in place of this one."""
        raise NotImplementedError(
            "this version holds a model for an inference server, and runs there: deploy it with `tidegate deploy`, "
            "and call it through its client model, whose name ends with `-client`"
        )


mlflow.models.set_model(RegisteredEntry())
