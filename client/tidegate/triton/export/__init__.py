"""Exports scikit-learn models as entries: converts them to ONNX, and compares the results."""
