"""Calling models through the inference proxy: the client, and the MLflow model that does nothing else.

Light on purpose: numpy, urllib3 and tritonclient's table of types, for an endpoint with 0.2 of a core and 0.2 GB.
"""

from pathlib import Path
from typing import Final

MODEL_SCRIPT: Final = Path(__file__).with_name("model_script.py")
"""What is logged as the client model of a registered version: MLflow runs it to get the model (models from code)."""
