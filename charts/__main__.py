"""`make chart`: generate the chart's directory from the components. --check writes nothing, and lists stale files."""

import sys

from . import CHART
from .folder import contents, stale, write

wanted = contents()
if "--check" in sys.argv:
    if changed := stale(wanted):
        sys.exit("\n".join(f"{CHART.name}/{path} is stale: run `make chart`" for path in changed))
else:
    for path in write(wanted):
        print(f"{CHART.name}/{path}: {'written' if path in wanted else 'removed'}")
