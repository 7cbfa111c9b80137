"""Sessions of the page by themselves."""

from kvtool.http.sessions import Sessions


def test_sessions_end_and_are_bounded() -> None:
    now = 0.0
    sessions = Sessions("kvtool", lambda: now)
    first, cookie = sessions.begin()
    header = [cookie.partition(";")[0]]
    assert sessions.find(header) is first
    assert sessions.find(["other=" + first.id]) is None
    assert sessions.find(["kvtool="]) is None
    now = 12 * 3600.0
    assert sessions.find(header) is None
    later, cookie = sessions.begin()
    for _ in range(63):
        sessions.begin()
    assert sessions.find(["a=b", cookie.partition(";")[0]]) is later
    sessions.begin()
    assert sessions.find([cookie.partition(";")[0]]) is None
