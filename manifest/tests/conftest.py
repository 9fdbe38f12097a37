"""An entry to start from, and the faults of one that has been changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tileops.manifest.validate import validate_files

ENTRY = """\
name = "ScaleFwdOp"
family = "norm"
status = "planned"
since = "0.1.0"
summary = "Scales each column."
formula = "y = x · weight"
reference = "torch.mul"

[signature.dims]
"*B" = "leading axes"
N = "columns"

[signature.dtypes]
T = ["float16", "float32"]

[[signature.params]]
name = "eps"
type = "float"
optional = true

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B", "N"]

[[signature.inputs]]
name = "weight"
dtype = "T"
shape = ["N"]
optional = true

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "N"]

[[signature.rules]]
require = "N > 0"
message = "there are {N} columns; there is at least 1"

[[workloads]]
label = "small"
model = "a model"
phase = "prefill"
params = { eps = 1e-5 }
dims = { B = [2, 3], N = 8 }
dtypes = { T = "float16" }
present = ["weight"]

[roofline]
flops = "prod(B) * N"
"""


@pytest.fixture
def entry_text() -> Callable[..., str]:
    """Return the entry above with texts replaced by others, each of which must be there."""

    def make(*changes: tuple[str, str]) -> str:
        text = ENTRY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        return text

    return make


@pytest.fixture
def faults_of(
    entry_text: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """Return the faults of the entry above with texts replaced, as ``validate`` prints them."""

    def check(*changes: tuple[str, str]) -> list[str]:
        monkeypatch.chdir(tmp_path)
        path = tmp_path / "norm" / "scale_fwd.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(entry_text(*changes), encoding="utf-8")
        return [str(fault) for fault in validate_files([(path, "tileops")]).faults]

    return check
