"""The registry, against a real MLflow server with object storage and folders behind it."""
