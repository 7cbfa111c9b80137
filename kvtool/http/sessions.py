"""Who has given the token to the page: a cookie with a random id stands for it, for some hours.

Kept in memory alone. Whoever starts the process anew has the page ask for the token once more.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_LASTS = 12 * 3600  # seconds
_MOST = 64  # sessions; the oldest goes


@dataclass(slots=True)
class Session:
    """One of them. Forms carry `secret`, which no other site knows; `notice` is for the next page."""

    id: str = field(default_factory=secrets.token_urlsafe)
    secret: str = field(default_factory=secrets.token_urlsafe)
    ends: float = 0.0
    notice: str = ""

    def sent(self, secret: str) -> bool:
        """Whether a form with this secret came from a page of this session."""
        return hmac.compare_digest(secret.encode(errors="surrogatepass"), self.secret.encode())


class Sessions:
    """All of them. `cookie` is the name: cookies know no ports, so each address needs its own."""

    def __init__(self, cookie: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._cookie = cookie
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def begin(self) -> tuple[Session, str]:
        """A new one, and the Set-Cookie header for it."""
        session = Session(ends=self._clock() + _LASTS)
        if len(self._sessions) >= _MOST:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[session.id] = session
        return session, self._header(session.id, _LASTS)

    def end(self, session: Session) -> str:
        """Forgets it; returns the Set-Cookie header that has the browser forget it too."""
        self._sessions.pop(session.id, None)
        return self._header("", 0)

    def find(self, cookies: list[str]) -> Session | None:
        """The session that these Cookie headers name."""
        for pair in ";".join(cookies).split(";"):
            name, _, value = pair.strip().partition("=")
            session = self._sessions.get(value) if name == self._cookie else None
            if session is not None and session.ends > self._clock():
                return session
        return None

    def _header(self, value: str, seconds: int) -> str:
        return f"{self._cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"
