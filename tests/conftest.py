"""Fixtures of all tests, and hypothesis' two profiles: `ci` (the default, always the same) and `fuzz`."""

import contextlib
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.logs import Collector, unexpected
from tests.mounts import MountedStore, temporary_folder

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # `expect_log` is autouse and keeps no state
)
settings.register_profile(
    "fuzz",
    settings.get_profile("ci"),
    derandomize=False,
    max_examples=5000,
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell's job in the background ignores Ctrl-C, and so would what the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def expect_log() -> Iterator[Callable[[str], None]]:
    """A log record of level warning or above fails the test, unless it matches a pattern given to this."""
    patterns: list[str] = []
    collector = Collector()
    logging.getLogger().addHandler(collector)
    try:
        yield patterns.append
    finally:
        logging.getLogger().removeHandler(collector)
    surprises = unexpected(collector.messages, patterns)
    assert not surprises, "unexpected log records:\n" + "\n".join(surprises)


@pytest.fixture
def mounts() -> Iterator[Callable[..., MountedStore]]:
    """Start mounts with flags of one's own: `mounts("--mount.cache", "32 MiB", limit=60)`."""
    if not os.path.exists("/dev/fuse") and "CI" not in os.environ:
        pytest.skip("there is no /dev/fuse here")
    with contextlib.ExitStack() as stack:

        def start(*flags: str, limit: float = 120) -> MountedStore:
            folder = stack.enter_context(temporary_folder())
            return stack.enter_context(MountedStore(folder, *flags, limit=limit))

        yield start


@pytest.fixture
def mount(mounts: Callable[..., MountedStore]) -> MountedStore:
    """A mount with default settings."""
    return mounts()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sees to it that all tests have ids of their own: pytest-xdist runs what has the same id once."""
    count = Counter(item.nodeid for item in items)
    if twice := [nodeid for nodeid, times in count.items() if times > 1]:
        raise pytest.UsageError(f"tests with the same id: {', '.join(twice)}")
