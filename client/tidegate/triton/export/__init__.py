"""Makes entries of scikit-learn models as they were trained: converted to ONNX, and then compared."""
