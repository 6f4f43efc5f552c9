"""The commands for models."""
