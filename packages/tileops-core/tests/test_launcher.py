"""What launches a program: its generated function, with a card's functions stood in for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tileops.core import tilelang_backend


@pytest.fixture
def no_card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyTorch's functions of a card, which a build for the CPU has not."""
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def empty(shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype)

    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cuda", empty, raising=False)
    tilelang_backend._launcher_maker.cache_clear()
    yield
    tilelang_backend._launcher_maker.cache_clear()


@pytest.mark.usefixtures("no_card")
def test_a_program_s_parameters_may_have_any_name() -> None:
    """``size`` and ``space`` were names of the generated function's own, and took their place."""
    calls: list[tuple[Any, ...]] = []
    names = [
        "size",
        "space",
        "index",
        "entry",
        "launch",
        "make",
        "empty",
        "bytes",
        "t0",
        "set_stream",
    ]
    numbers = {name: place for place, name in enumerate(names)}
    words = ["0", *names, "workspace", "1"]
    launch = tilelang_backend.launcher(
        lambda *given: calls.append(given), 0, words, numbers, workspace=64
    )
    x, y = torch.zeros(2), torch.zeros(3)
    launch(x, y)
    ((first, *rest, workspace, last),) = calls
    assert (first, last) == (x.data_ptr(), y.data_ptr())
    assert rest == list(range(len(names)))
    assert workspace not in (0, first, last)


@pytest.mark.usefixtures("no_card")
def test_without_a_workspace_nothing_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cuda", None, raising=False)
    calls: list[tuple[Any, ...]] = []
    launch = tilelang_backend.launcher(lambda *g: calls.append(g), 0, ["0", "m"], {"m": 7})
    x = torch.zeros(2)
    launch(x)
    assert calls == [(x.data_ptr(), 7)]
