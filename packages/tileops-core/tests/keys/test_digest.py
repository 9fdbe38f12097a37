"""The digest in a key, and the number that stands for what this package generates.

Compilers' caches know an artefact by the key in it and by nothing else of ours: two versions of an
op that share a key share artefacts, which crashes or loses writes.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Sequence

import pytest
from key_samples import PAIR, SCALE, TYPED, entry

import tileops.core.autograd
from tileops.core import boundary, checks
from tileops.core.boundary import digest
from tileops.core.generate import BOUNDARY_ABI, generate, operator_signature
from tileops.core.registration import TAGS
from tileops.core.watch import EXPORTING
from tileops.manifest import Entry, load_text

RICH = """
name = "RichFwdOp"
family = "keys"
status = "planned"
since = "0.1.0"
summary = "Has a part of every kind."
formula = "y = x"
reference = "torch.clone"

[signature.dims]
"*B" = "leading axes"
N = "columns"
M = "rows of the pool"

[signature.dtypes]
T = ["float32", "float16"]
W = ["float32", "float16"]

[[signature.dtype_combinations]]
T = "float32"
W = "float32"

[[signature.dtype_combinations]]
T = "float16"
W = "float32"

[[signature.params]]
name = "width"
type = "int"
doc = "of a page"
default = 1

[[signature.params]]
name = "eps"
type = "float"
optional = true
default = 1.0

[[signature.params]]
name = "kind"
type = "dtype"
choices = ["float32", "float16"]
default = "float32"

[[signature.params]]
name = "stats"
type = "bool"
default = false
keyword_only = true

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B", "N"]
doc = "the rows"

[[signature.inputs]]
name = "positions"
dtype = "int64"
shapes = [["N"], ["*B", "N"]]

[[signature.inputs]]
name = "state"
dtype = "T"
shape = ["*B", "N"]
mutated = true

[[signature.inputs]]
name = "pool"
dtype = "W"
shape = ["M", "width"]
optional = true
mutated = "stats"

[[signature.ints]]
name = "most"

[[signature.ints]]
name = "steps"
default = 3

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "N"]
buffer = "out"

[[signature.outputs]]
name = "grown"
dtype = "T"
shape = ["*B", "N"]
alias = "state"

[[signature.outputs]]
name = "total"
dtype = "kind"
shape = ["N + 1"]
when = "stats"

[[signature.rules]]
require = "N % 2 == 0"
message = "x has {N} columns; their number must be even"

[[signature.rules]]
require = "most >= 0"
message = "most is {most}; it is at least 0"
"""

RELIED_UPON = {
    "a dim": ('M = "rows of the pool"', 'K = "rows of the pool"'),
    "a dtype's range": ('W = ["float32", "float16"]', 'W = ["float32"]'),
    "a combination": ('T = "float16"\nW = "float32"', 'T = "float16"\nW = "float16"'),
    "a param's name": ('name = "eps"', 'name = "epsilon"'),
    "a param's type": (
        'type = "float"\noptional = true\ndefault = 1.0',
        'type = "int"\noptional = true\ndefault = 1',
    ),
    "a param's None": ('type = "float"\noptional = true', 'type = "float"'),
    "a param's choices": ('choices = ["float32", "float16"]', 'choices = ["float32"]'),
    "an input's dtype": ('dtype = "int64"', 'dtype = "int32"'),
    "an input's shape": ('shapes = [["N"], ["*B", "N"]]', 'shape = ["N"]'),
    "an input's presence": ('"width"]\noptional = true', '"width"]'),
    "what is written": ('mutated = "stats"\n', ""),
    "when it is written": ('mutated = "stats"', "mutated = true"),
    "a number's name": ('name = "steps"', 'name = "strides"'),
    "a number's default": ("default = 3", "default = 5"),
    "an output's dtype": ('dtype = "kind"', 'dtype = "T"'),
    "an output's shape": ('"N + 1"', '"N + 2"'),
    "when there is an output": ('when = "stats"\n', ""),
    "an alias": ('alias = "state"\n', ""),
    "a buffer": ('buffer = "out"\n', ""),
    "a rule": ("N % 2", "N % 4"),
    "a rule's message": ("must be even", "is even"),
    "the operator's name": ('family = "keys"', 'family = "locks"'),
}


@pytest.mark.parametrize("part", RELIED_UPON)
def test_the_digest_changes_with_what_an_artefact_relies_on(part: str) -> None:
    old, new = RELIED_UPON[part]
    assert RICH.count(old) == 1
    changed = RICH.replace(old, new)
    # What else must follow for the entry to be valid.
    if part == "a dim":
        changed = changed.replace('["M", "width"]', '["K", "width"]')
    assert digest(entry(changed)) != digest(entry(RICH))


def test_the_digest_changes_with_the_namespace_and_the_abi(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = digest(entry(RICH))
    assert digest(load_text(RICH, namespace="others")) != before
    monkeypatch.setattr(boundary, "BOUNDARY_ABI", BOUNDARY_ABI + 1)
    assert digest(entry(RICH)) != before
    monkeypatch.undo()
    monkeypatch.setattr(boundary, "TAGS", TAGS[:1])
    assert digest(entry(RICH)) != before


INDIFFERENT = {
    "a dim's description": ('"columns"', '"columns of x"'),
    "the summary": ("Has a part", "Holds a part"),
    "the formula": ('formula = "y = x"', 'formula = "y = x + 0"'),
    "the reference": ("torch.clone", "torch.Tensor.clone"),
    "docs": ('doc = "the rows"', 'doc = "rows"'),
    "since": ('since = "0.1.0"', 'since = "0.0.1"'),
    # A key spells every param out, given or by default.
    "a param's default": ("default = 1\n", "default = 2\n"),
    "a param's place": ("keyword_only = true\n", ""),
}
MORE = """
[roofline]
flops = "2 * N"

[[workloads]]
label = "small"
model = "none"
phase = "test"
params = {}
dims = { B = [3], N = 4 }
dtypes = { T = "float32", W = "float32" }
generators.positions = { kind = "positions" }

[[tolerances]]
output = "y"
dtype = "float32"
rtol = 0.0
atol = 0.0
reason = "a copy"
"""


@pytest.mark.parametrize("part", INDIFFERENT)
def test_the_digest_stays_where_no_artefact_depends_on_it(part: str) -> None:
    """Else each mended sentence would cost every user a new compile of everything."""
    old, new = INDIFFERENT[part]
    assert RICH.count(old) == 1
    assert digest(entry(RICH.replace(old, new))) == digest(entry(RICH))


def test_workloads_roofline_tolerances_and_status_are_no_part_of_the_digest() -> None:
    status = RICH.replace('status = "planned"', 'status = "implemented"')
    assert digest(entry(RICH + MORE)) == digest(entry(RICH)) == digest(entry(status))


def bare(node: object) -> str:
    """A tree as text, the same on every Python, without docstrings and the words of messages."""
    if isinstance(node, list):
        return f"[{', '.join(map(bare, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):
        return "message"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return "docstring"
    # Later Pythons have more fields, which are empty here.
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    inner = ", ".join(f"{name}={bare(value)}" for name, value in fields if name != "ctx")
    return f"{type(node).__name__}({inner})"


# What runs in a process that loads the artefact may change freely; what a compiler saw may not.
SEEN = ("_call_boundary", "_infer", "_fake_", "_operator_fake_")


def what_compilers_see(entries: Sequence[Entry]) -> str:
    seen = (tileops.core.autograd, checks.require, checks.match)
    parts = [bare(ast.parse(inspect.getsource(part))) for part in seen]
    parts += map(str, TAGS)
    for one in entries:
        # The condition is spelt by the release of PyTorch.
        tree = ast.parse(generate(one).replace(EXPORTING, "EXPORTING"))
        parts += [
            bare(function)
            for function in tree.body
            if isinstance(function, ast.FunctionDef) and function.name.startswith(SEEN)
        ]
        parts += [branch.operator + operator_signature(one, branch) for branch in one.branches]
    return "\n".join(parts)


FIXED = (SCALE, PAIR, TYPED, RICH)
HASHES: dict[int, str] = {1: "9783ddb303ed24e8"}


def test_what_compilers_see_changes_only_with_the_abi() -> None:
    text = what_compilers_see([entry(one) for one in FIXED])
    found = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert list(HASHES) == list(range(1, BOUNDARY_ABI + 1)), (
        "each BOUNDARY_ABI has one row of HASHES; add the missing one"
    )
    assert HASHES[BOUNDARY_ABI] == found, (
        "generated boundaries, schemas or the autograd kernel changed, and compiled artefacts "
        "that lie in caches rely on them: raise BOUNDARY_ABI in tileops/core/generate and add "
        f"its row to HASHES, {BOUNDARY_ABI + 1}: {found!r}. A row that no release carries yet is "
        f"replaced instead."
    )


@pytest.mark.parametrize(("old", "new"), [("N % 2", "N % 4"), ('"N + 1"', '"N + 2"')])
def test_the_hash_sees_a_changed_boundary(old: str, new: str) -> None:
    """The test above can fail: a rule and a result's shape are part of what it hashes."""
    changed = entry(RICH.replace(old, new))
    assert what_compilers_see([changed]) != what_compilers_see([entry(RICH)])
