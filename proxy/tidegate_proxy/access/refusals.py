"""What callers are told who could not show who they are."""

from ..problems import Kind, Problem


def refused(detail: str) -> Problem:
    """Return the problem of a credential that is known to be wrong. `detail` holds nothing of it."""
    return Problem(Kind.UNAUTHENTICATED, detail)


def unanswered(who: str, retry_after: float) -> Problem:
    """Return the problem of a credential that cannot be checked now: it may be right, so it is not called wrong."""
    return Problem(
        Kind.BUSY,
        f"{who} does not answer, so it cannot be known who you are. Send the request again.",
        retry_after,
    )
