"""Calls models through the inference proxy. Also the client model of MLflow, which only calls the proxy.

Imports only numpy, urllib3 and tritonclient's data types: it must run with 0.2 CPU cores and 0.2 GB.
"""

from pathlib import Path
from typing import Final

MODEL_SCRIPT: Final = Path(__file__).with_name("model_script.py")
"""Logged as the client model of a registered version. MLflow runs it to get the model ("models from code")."""
