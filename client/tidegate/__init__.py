"""Tidegate's client: register models in MLflow, deploy them to dev, promote them to prod, roll back, call them."""

from .api import Tidegate

__all__ = ["Tidegate"]
__version__ = "0.1.0"
