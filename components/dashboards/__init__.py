"""Grafana's dashboards of an environment, or of all of them."""

from .engine import ENGINE
from .model import MODEL
from .panel import Dashboard
from .platform import PLATFORM
from .proxies import PROXY
from .rollout import ROLLOUT
from .slices import SLICE

DASHBOARDS: tuple[Dashboard, ...] = (PLATFORM, MODEL, SLICE, ENGINE, PROXY, ROLLOUT)
