"""What every test run of the repository shares."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator

import pytest

OUTCOMES = pytest.StashKey[dict[str, set[str]]]()
"""What became of each test of this run, for the tests that look back over it."""


STORE = pytest.StashKey[contextlib.ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OUTCOMES] = {}
    # Tests neither read nor fill the user's own store of built kernels. Runs on a card may share
    # one that they name, so that workers and later runs do not build each other's kernels again.
    stack = config.stash[STORE] = contextlib.ExitStack()
    store = os.environ.get("TILEOPS_TESTS_CACHE_DIR") or stack.enter_context(
        tempfile.TemporaryDirectory(prefix="tileops-tests-")
    )
    os.environ["TILEOPS_CACHE_DIR"] = store


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[STORE].close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests marked ``gpu`` where there is no CUDA device; look back last.

    torch is imported only when such a test was collected: the manifest's own tests also run where
    torch is not installed.
    """
    items.sort(key=lambda item: item.get_closest_marker("looks_back") is not None)
    config.stash[OUTCOMES].update({item.nodeid: set() for item in items})
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        item.config.stash[OUTCOMES][item.nodeid].add(report.outcome)
    return report


@pytest.fixture
def outcomes(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """By test of this run: ``passed``, ``failed`` or ``skipped``; empty before it has run."""
    return request.config.stash[OUTCOMES]
