"""What HTTP callers see, against replicas that behave as badly as real ones can."""
