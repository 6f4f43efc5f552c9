"""The registry, with a real MLflow server on object storage and directories."""
