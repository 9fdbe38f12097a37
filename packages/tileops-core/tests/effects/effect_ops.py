"""Ops that only tests use: each has one effect that an entry can declare."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from tileops.core import KernelInterface, Op

from .declare import entry, inp, outp, param
from .targets import Call, launches, liar

__all__ = ["launches", "liar"]


class ForTests(Op, abstract=True):
    """An op without params whose ``forward`` is one kernel of the role ``main``."""

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def run(self, *inputs: torch.Tensor | None, options: tuple[Any, ...] = ()) -> Any:
        plain = [None if item is None else item.contiguous() for item in inputs]
        device = next(item.device for item in plain if item is not None)
        return self.kernel_for("main", Call(device, options))(*plain)


# -- written without a condition; nothing is returned -------------------------------------------


class Bump(KernelInterface):
    inputs: ClassVar = ("x", "by")
    outputs: ClassVar = ()

    @classmethod
    def reference(cls, call: Any, x: Any, by: Any) -> None:
        x += by


class BumpFwdOp(
    ForTests,
    entry=entry("BumpFwdOp", inp("x", "*B N", mutated="true"), inp("by", "N"), dims="*B N"),
):
    """x += by"""

    interfaces: ClassVar = {"main": Bump}

    def forward(self, x: torch.Tensor, by: torch.Tensor) -> None:
        return self.run(x, by)


# -- written where a param says so, and then returned -------------------------------------------


class Clip(KernelInterface):
    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)

    @classmethod
    def reference(cls, call: Any, x: Any) -> Any:
        return x.clamp_(min=0) if call.options[0] else x.clamp(min=0)


class ClipFwdOp(
    ForTests,
    entry=entry(
        "ClipFwdOp",
        param("inplace", "bool", default="false"),
        inp("x", "*B", mutated='"inplace"'),
        outp("y", "*B", alias='"x"'),
        dims="*B",
    ),
):
    """y = max(x, 0), in the place of x where ``inplace``"""

    interfaces: ClassVar = {"main": Clip}

    def __init__(self, inplace: bool = False, *, target: str | None = None) -> None:
        self.inplace = inplace
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x, options=(self.inplace,))


# -- an optional input is written where it is there ---------------------------------------------


class Tally(KernelInterface):
    inputs: ClassVar = ("x", "scale", "total")
    outputs: ClassVar = ("y",)

    @classmethod
    def reference(cls, call: Any, x: Any, scale: Any, total: Any) -> Any:
        y = x * (2 if scale is None else scale)
        if total is not None:
            total += y.sum(0)
        return y


class TallyFwdOp(
    ForTests,
    entry=entry(
        "TallyFwdOp",
        inp("x", "M N"),
        inp("scale", "N", optional="true"),
        inp("total", "N", optional="true", mutated="true"),
        outp("y", "M N"),
        dims="M N",
    ),
):
    """y = x · (scale or 2); total += sum of y over rows"""

    interfaces: ClassVar = {"main": Tally}

    def forward(self, x: Any, scale: Any = None, total: Any = None) -> torch.Tensor:
        return self.run(x, scale, total)


# -- a dim that only optional inputs have: the first that is there binds it ---------------------


class PairFwdOp(
    ForTests,
    entry=entry(
        "PairFwdOp",
        inp("x", "M"),
        inp("a", "N", optional="true"),
        inp("b", "N", optional="true"),
        outp("y", "M"),
        dims="M N",
    ),
):
    """y = x + sum(a) + sum(b)"""

    def forward(self, x: Any, a: Any = None, b: Any = None) -> torch.Tensor:
        for item in (a, b):
            x = x if item is None else x + item.sum()
        return x.contiguous() if a is not None or b is not None else x.clone()


# -- an out buffer ------------------------------------------------------------------------------


class Twice(KernelInterface):
    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)

    @classmethod
    def reference(cls, call: Any, x: Any) -> Any:
        return x * 2


class TwiceFwdOp(
    ForTests,
    entry=entry("TwiceFwdOp", inp("x", "*B N"), outp("y", "*B N", buffer='"out"'), dims="*B N"),
):
    """y = 2 · x"""

    interfaces: ClassVar = {"main": Twice}

    def forward(self, x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        result = self.run(x)
        if out is not None and result is not out:
            return out.copy_(result)
        return result


# -- several outputs, some of them left out -----------------------------------------------------


class Moments(KernelInterface):
    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y", "mean", "rstd")

    @classmethod
    def reference(cls, call: Any, x: Any) -> Any:
        mean = x.mean(-1)
        rstd = (x.var(-1, correction=0) + 1e-5).rsqrt()
        return (x - mean[..., None]) * rstd[..., None], mean, rstd


class CenterOnly(Moments):
    outputs: ClassVar = ("y",)

    @classmethod
    def reference(cls, call: Any, x: Any) -> Any:
        return Moments.reference(call, x)[0]


class MomentsFwdOp(
    ForTests,
    entry=entry(
        "MomentsFwdOp",
        param("return_stats", "bool", default="true"),
        inp("x", "*B N"),
        outp("y", "*B N"),
        outp("mean", "*B", when='"return_stats"'),
        outp("rstd", "*B", when='"return_stats"'),
        dims="*B N",
    ),
):
    """y = (x - mean) · rstd; mean and rstd where ``return_stats``"""

    interfaces: ClassVar = {"main": Moments, "y": CenterOnly}

    def __init__(self, return_stats: bool = True, *, target: str | None = None) -> None:
        self.return_stats = return_stats
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        role = "main" if self.return_stats else "y"
        return self.kernel_for(role, Call(x.device))(x.contiguous())


# -- statistics that only training writes, and a counter that forward writes by itself ----------


class Batch(KernelInterface):
    inputs: ClassVar = ("x", "running_mean")
    outputs: ClassVar = ("y",)

    @classmethod
    def reference(cls, call: Any, x: Any, running_mean: Any) -> Any:
        mean = x.mean(0) if call.options[0] or running_mean is None else running_mean
        y = x - mean
        if call.options[0] and running_mean is not None:
            running_mean.lerp_(mean, 0.5)
        return y


class BatchFwdOp(
    ForTests,
    entry=entry(
        "BatchFwdOp",
        param("training", "bool", default="false"),
        inp("x", "N C"),
        inp("running_mean", "C", optional='"training"', mutated='"training"'),
        inp("count", "", "int64", optional="true", mutated='"training"'),
        outp("y", "N C"),
        dims="N C",
    ),
):
    """y = x - mean; in training running_mean and count go on"""

    interfaces: ClassVar = {"main": Batch}

    def __init__(self, training: bool = False, *, target: str | None = None) -> None:
        self.training = training
        super().__init__(target=target)

    def forward(self, x: Any, running_mean: Any = None, count: Any = None) -> torch.Tensor:
        if self.training and count is not None:
            count.add_(1)
        return self.run(x, running_mean, options=(self.training,))


# -- all suffixes at once -----------------------------------------------------------------------


class Turn(KernelInterface):
    inputs: ClassVar = ("q", "k")
    outputs: ClassVar = ("y", "lse")

    @classmethod
    def reference(cls, call: Any, q: Any, k: Any) -> Any:
        if call.options[0]:
            q.mul_(2)
            k.mul_(3)
            return q + k, q.sum(-1)
        return q * 2 + k * 3, (q * 2).sum(-1)


class TurnOnly(Turn):
    outputs: ClassVar = ("y",)

    @classmethod
    def reference(cls, call: Any, q: Any, k: Any) -> Any:
        return Turn.reference(call, q, k)[0]


class TurnFwdOp(
    ForTests,
    entry=entry(
        "TurnFwdOp",
        param("inplace", "bool", default="true"),
        param("return_lse", "bool", default="false"),
        inp("q", "S D", mutated='"inplace"'),
        inp("k", "S D", mutated='"inplace"'),
        outp("y", "S D", buffer='"out"'),
        outp("lse", "S", when='"return_lse"'),
        dims="S D",
    ),
):
    """q *= 2, k *= 3 where ``inplace``; y = 2q + 3k; lse = sum of 2q where ``return_lse``"""

    interfaces: ClassVar = {"main": Turn, "y": TurnOnly}

    def __init__(
        self, inplace: bool = True, return_lse: bool = False, *, target: str | None = None
    ) -> None:
        self.inplace = inplace
        self.return_lse = return_lse
        super().__init__(target=target)

    def forward(self, q: Any, k: Any, *, out: Any = None) -> Any:
        call = Call(q.device, (self.inplace,))
        kernel = self.kernel_for("main" if self.return_lse else "y", call)
        results = kernel(q.contiguous(), k.contiguous())
        y, *rest = results if isinstance(results, tuple) else (results,)
        if out is not None and y is not out:
            y = out.copy_(y)
        return (y, *rest) if rest else y


# -- shapes by rank, an expression axis, a call-time number -------------------------------------


class Place(KernelInterface):
    inputs: ClassVar = ("x", "positions", "starts")
    outputs: ClassVar = ("y",)

    @classmethod
    def reference(cls, call: Any, x: Any, positions: Any, starts: Any) -> Any:
        return x + positions.clamp(max=call.options[0])[..., None] + starts[-1]


class PlaceFwdOp(
    ForTests,
    entry=entry(
        "PlaceFwdOp",
        inp("x", "B S D"),
        inp("positions", "S | B S", "int64"),
        inp("starts", "B+1", "int32"),
        '[[signature.ints]]\nname = "limit"\n',
        outp("y", "B S D"),
        '[[signature.rules]]\nrequire = "limit > 0"\n'
        'message = "limit is {limit}; it must be positive"\n',
        dims="B S D",
    ),
):
    """y = x + min(position, limit) + starts[-1]"""

    interfaces: ClassVar = {"main": Place}

    def forward(self, x: Any, positions: Any, starts: Any, limit: int) -> torch.Tensor:
        return self.run(x, positions, starts, options=(limit,))


class CapFwdOp(
    ForTests,
    entry=entry(
        "CapFwdOp",
        inp("x", "*B"),
        inp("low", "*B", optional="true"),
        '[[signature.ints]]\nname = "limit"\n',
        '[[signature.ints]]\nname = "shift"\ndefault = 0\n',
        outp("y", "*B", buffer='"out"'),
        dims="*B",
    ),
):
    """y = min(max(x, low), limit) + shift; after an optional input ``limit`` is named"""

    def forward(
        self, x: Any, low: Any = None, shift: int = 0, *, limit: int, out: Any = None
    ) -> torch.Tensor:
        y = (x if low is None else torch.maximum(x, low)).clamp(max=limit) + shift
        return y.contiguous() if out is None else out.copy_(y)
