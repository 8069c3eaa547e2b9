"""What every test stands on: printed seeds, Hypothesis profiles, data sets, and no sleeping in the fast tier."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from scarml.engine.ray.connection import RayCluster

os.environ.setdefault("MPLBACKEND", "Agg")  # no test opens a window

ROOT = Path(__file__).resolve().parent.parent
SEED_VARIABLE = "SCAR_TEST_SEED"
CI_MAX_EXAMPLES = 60
FAST_MAX_EXAMPLES = 15


def pytest_configure(config: pytest.Config) -> None:
    # Time limits of single examples depend on the machine; a hang is caught by the limit of the whole test.
    common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    # On CI the same commit must give the same answer: no new random examples there.
    on_ci = bool(os.environ.get("CI"))
    settings.register_profile("fast", common, max_examples=FAST_MAX_EXAMPLES, derandomize=on_ci)
    settings.register_profile("ci", common, max_examples=CI_MAX_EXAMPLES, derandomize=True)
    if not config.getoption("hypothesis_profile", None):
        settings.load_profile("ci" if _is_ci_tier(config) else "fast")
    time.sleep = _guarded_sleep


def pytest_unconfigure() -> None:
    time.sleep = _real_sleep


@pytest.hookimpl(tryfirst=True)  # before those with other marks are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Properties are in both tiers: few examples in the fast one, many in CI."""
    if _is_ci_tier(config):
        for item in items:
            if is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker("ci")


def pytest_report_header() -> list[str]:
    data = os.environ.get("SCAR_DATA_DIR", "unset, so tests on full data sets are skipped")
    return [f"{SEED_VARIABLE}={_base_seed()} (set it to repeat a run, or to try another)", f"SCAR_DATA_DIR: {data}"]


@pytest.fixture(scope="session")
def base_seed() -> int:
    """The seed from which a test derives all of its own; 0 unless SCAR_TEST_SEED says otherwise."""
    return _base_seed()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of full data sets."""
    value = os.environ.get("SCAR_DATA_DIR")
    if not value:
        pytest.skip("SCAR_DATA_DIR is not set: this test needs the full data sets (docs/reference/data.md)")
    assert Path(value).is_dir(), f"SCAR_DATA_DIR={value} is not a folder"
    return Path(value)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A Ray, and processes in it, for all tests: it takes ten seconds to start, and a job in it one."""
    from scarml.engine.ray.connection import RayCluster

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        with RayCluster() as cluster:
            yield cluster


@pytest.fixture
def single_threaded_blas() -> Iterator[None]:
    """One BLAS thread, for tests that compare bits of matrix products.

    Not for tests of engines: there it is the engine that must see to it.
    """
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own SCAR_* settings do not leak into tests."""
    for name in list(os.environ):
        if name.startswith("SCAR_") and name not in ("SCAR_DATA_DIR", SEED_VARIABLE):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _no_sleep_in_the_fast_tier(request: pytest.FixtureRequest) -> Iterator[None]:
    """SCAR's code and tests wait for events, not for time; a fast test that sleeps fails."""
    allowed = any(request.node.get_closest_marker(tier) for tier in ("ci", "soak"))
    _sleepers.clear()
    _guard.update(on=not allowed)
    yield
    _guard.update(on=False)
    if _sleepers:
        pytest.fail(f"time.sleep in the fast tier, called from {', '.join(_sleepers)}; wait for an event instead")


_real_sleep = time.sleep
_guard = {"on": False}
_sleepers: list[str] = []


def _guarded_sleep(seconds: float) -> None:
    """`time.sleep`, which notes who of us called it; the standard library and other packages may sleep."""
    caller = sys._getframe(1)
    path = Path(caller.f_code.co_filename)
    if _guard["on"] and (path.is_relative_to(ROOT / "src") or path.is_relative_to(ROOT / "tests")):
        _sleepers.append(f"{path.relative_to(ROOT)}:{caller.f_lineno}")
    _real_sleep(seconds)


def _is_ci_tier(config: pytest.Config) -> bool:
    return str(config.getoption("markexpr")).startswith("ci")


def _base_seed() -> int:
    return int(os.environ.get(SEED_VARIABLE, "0"))
