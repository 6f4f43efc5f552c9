"""What Tidegate's processes in a pod do alike: their log, their listeners, the thread of their admin port."""
