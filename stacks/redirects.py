"""HTTP requests that follow no redirect."""

from urllib.request import HTTPRedirectHandler


class NoRedirects(HTTPRedirectHandler):
    """Makes a redirect an error, because it is no success, and a credential must not follow it."""

    def redirect_request(self, *_: object) -> None:
        return None
