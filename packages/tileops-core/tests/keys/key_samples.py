"""Ops that the tests of keys and of dynamic shapes declare, importable in a fresh process too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tileops.core import Op
from tileops.manifest import Entry, load_text

SCALE = """
name = "ScaleFwdOp"
family = "keys"
status = "planned"
since = "0.1.0"
summary = "Multiplies every row by a number and by a weight."
formula = "y = factor * x * weight"
reference = "torch.mul"

[signature.dims]
"*B" = "leading axes"

[signature.dtypes]
T = ["float32", "float64"]

[[signature.params]]
name = "normalized_shape"
type = "shape"

[[signature.params]]
name = "factor"
type = "float"
default = 2.0

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B", "*normalized_shape"]

[[signature.inputs]]
name = "weight"
dtype = "T"
shape = ["*normalized_shape"]
optional = true

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "*normalized_shape"]
"""

PAIR = """
name = "PairFwdOp"
family = "keys"
status = "planned"
since = "0.1.0"
summary = "Sums the rows of two matrices and repeats the sum for both halves of the columns."
formula = "y = sum(x) + sum(z)"
reference = "torch.sum"

[signature.dims]
B = "rows"
N = "columns of x"
M = "columns of z"

[signature.dtypes]
T = ["float32", "float64"]

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["B", "N"]

[[signature.inputs]]
name = "z"
dtype = "T"
shape = ["B", "M"]

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["B", "N + M"]

[[signature.rules]]
require = "N % 2 == 0"
message = "x has {N} columns; their number must be even"
"""

TYPED = """
name = "TypedFwdOp"
family = "keys"
status = "planned"
since = "0.1.0"
summary = "Has a param of every type."
formula = "y = x"
reference = "torch.clone"

[signature.dims]
N = "elements"

[[signature.params]]
name = "count"
type = "int"
default = 1

[[signature.params]]
name = "ratio"
type = "float"
optional = true

[[signature.params]]
name = "flag"
type = "bool"
default = false

[[signature.params]]
name = "text"
type = "str"
default = ""

[[signature.params]]
name = "mode"
type = "str"
choices = ["plain", "negated"]
default = "plain"

[[signature.params]]
name = "level"
type = "int"
choices = [1, 2]
default = 1

[[signature.params]]
name = "kind"
type = "dtype"
choices = ["float32", "float16"]
default = "float32"

[[signature.params]]
name = "place"
type = "device"
default = "cpu"

[[signature.params]]
name = "unique"
type = "shape"
default = [1]

[[signature.params]]
name = "steps"
type = "ints"
default = []

[[signature.params]]
name = "weights"
type = "floats"
default = []

[[signature.inputs]]
name = "x"
dtype = "float32"
shape = ["N"]

[[signature.outputs]]
name = "y"
dtype = "kind"
shape = ["N"]

[[signature.outputs]]
name = "half"
dtype = "float16"
shape = ["N"]
when = "kind == 'float16'"

[[signature.rules]]
require = "kind != 'float16' or count < 100"
message = "count is {count} in {kind}; it is below 100"
"""

COUNT = """
name = "CountFwdOp"
family = "keys"
status = "planned"
since = "0.1.0"
summary = "Multiplies by a number that each call gives."
formula = "y = most * x"
reference = "torch.mul"

[signature.dims]
N = "elements"

[[signature.inputs]]
name = "x"
dtype = "float32"
shape = ["N"]

[[signature.ints]]
name = "most"

[[signature.outputs]]
name = "y"
dtype = "float32"
shape = ["N"]

[[signature.rules]]
require = "most >= 0"
message = "most is {most}; it is at least 0"
"""


def entry(text: str) -> Entry:
    return load_text(text, path=Path("keys.toml"))


class ScaleFwdOp(Op, entry=entry(SCALE)):
    def __init__(
        self, normalized_shape: Any, factor: float = 2.0, *, target: str | None = None
    ) -> None:
        self.normalized_shape = normalized_shape
        self.factor = factor
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        y = x.contiguous() * self.factor
        return y if weight is None else y * weight


class PairFwdOp(Op, entry=entry(PAIR)):
    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        total = x.sum(1, keepdim=True) + z.sum(1, keepdim=True)
        return total.expand(-1, x.shape[1] + z.shape[1]).contiguous()


class TypedFwdOp(Op, entry=entry(TYPED)):
    def __init__(
        self,
        count: int = 1,
        ratio: float | None = None,
        flag: bool = False,
        text: str = "",
        mode: str = "plain",
        level: int = 1,
        kind: Any = torch.float32,
        place: Any = "cpu",
        unique: Any = (1,),
        steps: Any = (),
        weights: Any = (),
        *,
        target: str | None = None,
    ) -> None:
        self.count = count
        self.ratio = ratio
        self.flag = flag
        self.text = text
        self.mode = mode
        self.level = level
        self.kind = kind
        self.place = place
        self.unique = unique
        self.steps = steps
        self.weights = weights
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        y = x.contiguous().to(self.kind, copy=True)
        return (y, x.to(torch.float16, copy=True)) if self.kind is torch.float16 else y


class NotedScaleOp(Op, entry=entry(SCALE.replace("ScaleFwdOp", "NotedScaleOp"))):
    """Keeps something beside its params."""

    def __init__(
        self,
        normalized_shape: Any,
        factor: float = 2.0,
        *,
        note: str | None = None,
        target: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape
        self.factor = factor
        self.notes: list[Any] = [] if note is None else [note]
        super().__init__(target=target)

    forward = ScaleFwdOp.forward


class CountFwdOp(Op, entry=entry(COUNT)):
    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, most: int) -> torch.Tensor:
        return x.contiguous() * most


WIDEN = """
name = "WidenFwdOp"
family = "keys"
status = "planned"
since = "0.1.0"
summary = "Gives its input, in version 2 as float64."
formula = "y = x"
reference = "torch.clone"

[signature.dims]
"*B" = "axes"

[[signature.inputs]]
name = "x"
dtype = "float32"
shape = ["*B"]

[[signature.outputs]]
name = "y"
dtype = "float32"
shape = ["*B"]
"""

TENFOLD = """
name = "TenfoldFwdOp"
family = "keys"
status = "planned"
since = "0.1.0"
summary = "Multiplies a by ten in place, in version 2 b."
formula = "a = 10 * a"
reference = "torch.Tensor.mul_"

[signature.dims]
"*B" = "axes"

[[signature.inputs]]
name = "a"
dtype = "float32"
shape = ["*B"]
mutated = true

[[signature.inputs]]
name = "b"
dtype = "float32"
shape = ["*B"]
"""


def make_version(number: int) -> tuple[Op, Op]:
    """An op of each of two classes, as version 1 or 2 of their package declares them."""
    widen, tenfold = WIDEN, TENFOLD
    if number == 2:
        widen = widen.replace('name = "y"\ndtype = "float32"', 'name = "y"\ndtype = "float64"')
        tenfold = tenfold.replace("mutated = true\n", "") + "mutated = true\n"

    class WidenFwdOp(Op, entry=entry(widen)):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float32 if number == 1 else torch.float64, copy=True)

    class TenfoldFwdOp(Op, entry=entry(tenfold)):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> None:
            (a if number == 1 else b).mul_(10)

    return WidenFwdOp(), TenfoldFwdOp()
