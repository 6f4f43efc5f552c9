"""The attacked proxy. It fetches an issuer's keys without a pause, so that an issuer that hangs has as many calls as
the proxy permits."""

from functools import partial
from unittest.mock import patch

from tidegate_proxy import __main__ as program
from tidegate_proxy.serve import Proxy
from tidegate_proxy.settings import Tunables

if __name__ == "__main__":
    with patch.object(program, "Proxy", partial(Proxy, tunables=Tunables(key_pause_seconds=0.0))):
        program.app(prog_name="python -m tidegate_proxy")
