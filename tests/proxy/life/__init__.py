"""The life of the process: started wrongly, reloaded, restarted and ended under load, with providers that fail."""
