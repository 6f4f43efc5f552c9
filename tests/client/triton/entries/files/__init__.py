from pathlib import Path

FILES = Path(__file__).parent
