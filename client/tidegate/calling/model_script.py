"""MLflow runs this script to get the client model. It is logged as code, so nothing is pickled."""

from mlflow.models import set_model

from tidegate.calling.triton_model import TritonModel

set_model(TritonModel())
