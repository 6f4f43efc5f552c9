"""Tidegate's client: register models in MLflow, deploy them to dev, promote them to prod, roll back, call them."""

__version__ = "0.1.0"
