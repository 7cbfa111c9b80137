"""Fixtures of all tests, and hypothesis' two profiles: `ci` (the default, always the same) and `fuzz`."""

import os

from hypothesis import HealthCheck, settings

from tests.logs import expect_log
from tests.mounts import mount, mounts

__all__ = ["expect_log", "mount", "mounts"]

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
