"""The Triton beside the policy: how it is controlled, how much memory it has, what its repository holds."""
