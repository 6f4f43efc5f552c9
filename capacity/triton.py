"""What Triton itself measures: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/metrics.html."""

WORK_SECONDS = "sum by (namespace, model) (max_over_time(nv_inference_request_duration_us{$match}[$length])) / 1e6"
"""The time that all requests of a model took since it was loaded, in Triton's queue and at work: no load is in it."""
REQUESTS = "sum by (namespace, model) (max_over_time(nv_inference_request_success{$match}[$length]))"
"""How many these were."""
