"""MLflow runs this to get the client model: it is logged as code, so that nothing is pickled."""

from mlflow.models import set_model

from tidegate.calling.triton_model import TritonModel

set_model(TritonModel())
