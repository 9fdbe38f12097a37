"""The adapters of tools/peers hand calls on as the peers take them.

The peers themselves need a card: here their functions are stand-ins of the same signature.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn import functional

import tileops.norm
from tileops.core.bench.peer_process import load

PEERS = Path(__file__).parents[1] / "tools" / "peers"
ROWS = {"normalized_shape": [16], "eps": 1e-5}
OFFSET = {**ROWS, "weight_offset": 1.0}


def rms_norm(x: Any, weight: Any, eps: float, offset: float) -> torch.Tensor:
    scale = None if weight is None else weight.float() + offset
    return functional.rms_norm(x.float(), x.shape[-1:], scale, eps).to(x.dtype)


def quack() -> ModuleType:
    module = ModuleType("quack.rmsnorm")

    def rmsnorm_fwd(
        x: Any, weight: Any = None, residual: Any = None, eps: float = 1e-6, weight_offset: Any = 0
    ) -> Any:
        assert x.dim() == 2
        total = x if residual is None else x + residual
        return rms_norm(total, weight, eps, weight_offset), total, None

    def layernorm_fwd(x: Any, weight: Any, bias: Any = None, eps: float = 1e-6) -> Any:
        assert x.dim() == 2
        assert weight.dtype == torch.float32
        return functional.layer_norm(x.float(), x.shape[-1:], weight, bias, eps).to(x.dtype)

    vars(module).update(rmsnorm_fwd=rmsnorm_fwd, layernorm_fwd=layernorm_fwd)
    return module


def liger(name: str, function: Any) -> tuple[str, ModuleType]:
    file, cls = name.split(".")
    module = ModuleType(f"liger_kernel.ops.{file}")
    setattr(module, cls, type(cls, (), {"apply": staticmethod(function)}))
    return module.__name__, module


def fused(x: Any, residual: Any, weight: Any, eps: float, offset: float, mode: str, _: Any) -> Any:
    assert mode == "gemma"
    return rms_norm(x + residual, weight, eps, offset), x + residual


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [
        ("quack", ModuleType("quack")),
        ("quack.rmsnorm", quack()),
        ("liger_kernel", ModuleType("liger_kernel")),
        ("liger_kernel.ops", ModuleType("liger_kernel.ops")),
        liger("rms_norm.LigerRMSNormFunction", lambda x, w, eps, o, *_: rms_norm(x, w, eps, o)),
        liger("fused_add_rms_norm.LigerFusedAddRMSNormFunction", fused),
        liger(
            "layer_norm.LigerLayerNormFunction",
            lambda x, w, b, eps: functional.layer_norm(x, x.shape[-1:], w, b, eps),
        ),
    ]
    for name, module in modules:
        monkeypatch.setitem(sys.modules, name, module)


def arguments(op: str, weight: bool = True) -> dict[str, torch.Tensor]:
    found = {"x": torch.randn(2, 3, 16)}
    if "FusedAdd" in op:
        found["residual"] = torch.randn(2, 3, 16)
    if weight:
        found["weight"] = torch.randn(16)
        found |= {"bias": torch.randn(16)} if "Layer" in op else {}
    return found


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("peer", ["quack", "liger-kernel"])
@pytest.mark.parametrize(
    ("op", "params"),
    [("RMSNormFwdOp", OFFSET), ("FusedAddRMSNormFwdOp", OFFSET), ("LayerNormFwdOp", ROWS)],
)
def test_it_serves_what_the_peer_has(peer: str, op: str, params: dict[str, Any]) -> None:
    given = arguments(op)
    function = load(PEERS / f"{peer}.py").make(op, params, given)
    found, expected = function(**given), getattr(tileops.norm, op)(**params)(**given)
    torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("peer", ["quack", "liger-kernel"])
@pytest.mark.parametrize(
    ("op", "params", "weight"),
    [
        ("FusedAddRMSNormFwdOp", {**OFFSET, "inplace": True}, True),
        ("RMSNormFwdOp", {**OFFSET, "normalized_shape": [3, 16]}, True),
        ("LayerNormFwdOp", ROWS, False),
        ("AdaLayerNormFwdOp", {"eps": 1e-6}, False),
        ("FusedAddLayerNormFwdOp", {**ROWS, "inplace": False}, True),
        ("RMSNormPerTokenQuantFwdOp", {**OFFSET, "scale_ub": None}, True),
    ],
)
def test_it_has_nothing_for_other_calls(peer: str, op: str, params: Any, weight: bool) -> None:
    assert load(PEERS / f"{peer}.py").make(op, params, arguments(op, weight)) is None


class Older:
    """An op as the released tileops has them: fewer params, and another name for x."""

    def __init__(self, eps: float = 1e-6) -> None:
        self.eps = eps

    def forward(self, input: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        return torch.nn.functional.rms_norm(input, input.shape[-1:], weight, self.eps)

    def __call__(self, **given: torch.Tensor) -> torch.Tensor:
        return self.forward(**given)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(tileops.norm, "RMSNormFwdOp", Older)
    adapter = load(PEERS / "tileops-0.1.0.py")
    monkeypatch.setattr(adapter, "FAMILIES", ("norm",))
    return adapter


def test_the_released_tileops_is_called_by_its_own_names(released: ModuleType) -> None:
    """It knows some params less; those that ask for nothing are left out, and no others."""
    given = arguments("RMSNormFwdOp")
    params = {"normalized_shape": [16], "eps": 1e-5, "weight_offset": 0.0}
    function = released.make("RMSNormFwdOp", params, given)
    assert function is not None
    expected = torch.nn.functional.rms_norm(given["x"], (16,), given["weight"], 1e-5)
    torch.testing.assert_close(function(**given), expected)


@pytest.mark.parametrize(
    ("op", "changed", "more"),
    [
        ("RMSNormFwdOp", {"weight_offset": 1.0}, {}),
        ("RMSNormFwdOp", {"normalized_shape": [3, 16]}, {}),
        ("RMSNormFwdOp", {}, {"residual": torch.zeros(16)}),
        ("AdaLayerNormZeroFwdOp", {}, {}),
        ("NoSuchFwdOp", {}, {}),
    ],
)
def test_the_released_tileops_has_nothing_for_other_calls(
    released: ModuleType, op: str, changed: dict[str, Any], more: dict[str, Any]
) -> None:
    params = {"normalized_shape": [16], "eps": 1e-5, "weight_offset": 0.0, **changed}
    assert released.make(op, params, {**arguments("RMSNormFwdOp"), **more}) is None
