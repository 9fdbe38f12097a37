"""New ops and new families: what is written works as far as it goes, and fails until it is filled.

The stubs are imported from a copy of this repository, in processes of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import changes, new_family, new_op
from tools.workspace import closure, distributions, table


def run(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python command with the copy's sources before those that are installed."""
    sources = [str(one.folder / "src") for one in distributions(repository).values()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sources, str(repository)])}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def repository(copied: Path) -> Path:
    """The copy as it is: what is imported from it must be at the versions that are installed."""
    return copied


@pytest.fixture
def acme(repository: Path) -> Path:
    """A copy with a family of its own, which has no op yet."""
    new_family.write("acme", "Acme ops.", repository)
    for path in (repository / "packages" / "tileops-acme").rglob("*"):
        if path.is_file() and path.suffix in (".md", ".py"):
            path.write_text(path.read_text("utf-8").replace("FILL: ", ""))
    return repository


def test_an_op_s_files_are_written(acme: Path) -> None:
    written = new_op.write("acme", "AcmeScaleFwdOp", acme)
    family = "packages/tileops-acme"
    package = f"{family}/src/tileops/acme"
    assert [path.relative_to(acme).as_posix() for path in written] == [
        "manifest/src/tileops/manifest/entries/acme/acme_scale_fwd.toml",
        "manifest/changes/+acme_scale.added.md",
        f"{package}/acme_scale/__init__.py",
        f"{package}/acme_scale/op.py",
        f"{package}/acme_scale/reference.py",
        f"{package}/acme_scale/kernels.py",
        f"{package}/contracts/__init__.py",
        f"{family}/pyproject.toml",
        f"{package}/contracts/acme_scale.py",
        f"{family}/tests/test_acme_scale.py",
        f"{package}/__init__.py",
        f"{family}/changes/+acme_scale.added.md",
    ]
    points = table(acme / family / "pyproject.toml")["project"]["entry-points"]
    assert points["tileops.contracts"] == {"acme": "tileops.acme.contracts"}
    assert changes.faults([], acme) == []


def test_a_second_op_joins_the_first(acme: Path) -> None:
    new_op.write("acme", "AcmeScaleFwdOp", acme)
    written = new_op.write("acme", "AcmeBiasFwdOp", acme)
    assert acme / "packages" / "tileops-acme" / "pyproject.toml" not in written
    program = (
        "import tileops.acme, tileops.acme.contracts as contracts\n"
        "from tileops.core import contract\n"
        "print(tileops.acme.__all__, contracts.__all__)\n"
        "print([case.name for case in contract.cases('acme')])\n"
    )
    assert run(acme, "-c", program).stdout.splitlines() == [
        "['AcmeBiasFwdOp', 'AcmeScaleFwdOp', '__version__'] ['acme_bias', 'acme_scale']",
        "['AcmeBiasFwdOp-float32', 'AcmeScaleFwdOp-float32']",
    ]


def test_the_stubs_import_and_the_tests_fail_by_name(acme: Path) -> None:
    new_op.write("acme", "AcmeScaleFwdOp", acme)
    tests = "packages/tileops-acme/tests/test_acme_scale.py"
    done = run(acme, "-m", "pytest", "-q", "--import-mode=importlib", "-c", os.devnull, tests)
    assert "1 passed" in done.stdout, done.stdout
    assert done.stdout.count("Failed: FILL: ") >= 4
    failed = set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE))
    assert failed == {
        "test_equals_the_float64_formula",
        "test_sizes_of_zero",
        "test_strided_inputs",
        "test_refuses_what_its_entry_rules_out",
    }
    program = (
        "import torch, tileops.acme.contracts\n"
        "from tileops.core import contract\n"
        "[case] = contract.cases('acme')\n"
        "device = torch.device('cpu')\n"
        "for call in (\n"
        "    lambda: contract.check_cold_compile(case, device=device),\n"
        "    lambda: case.oracle(None, x=None),\n"
        "    lambda: case.make()(torch.ones(2, 3)),\n"
        "):\n"
        "    try: call()\n"
        "    except NotImplementedError as error: print(error)\n"
    )
    assert run(acme, "-c", program).stdout.splitlines() == [
        "FILL: the inputs of AcmeScaleFwdOp's case",
        "FILL: the oracle of AcmeScaleFwdOp",
        "FILL: the reference of AcmeScaleFwdOp",
    ]
    program = (
        "from tileops.core.conformance import check_class\n"
        "from tileops.acme import AcmeScaleFwdOp as op\n"
        "print(*check_class(op.entry, op))\n"
    )
    assert "a planned entry has no class yet" in run(acme, "-c", program).stdout


def test_every_mark_is_found(acme: Path) -> None:
    assert new_op.unfilled(acme) == []
    written = new_op.write("acme", "AcmeScaleFwdOp", acme)
    marked = {place.split(":")[0] for place in new_op.unfilled(acme)}
    quiet = ("__init__.py", "pyproject.toml", "manifest/changes/+acme_scale.added.md")
    names = [path.relative_to(acme).as_posix() for path in written]
    assert marked == {name for name in names if not name.endswith(quiet)}


HEAD = """\
#:schema ../../../../../../schema/op.schema.json

name = "AcmeFwdOp"
family = "acme"
status = "planned"
since = "0.1.0"
summary = "An op."
formula = "y = x"
reference = "none"
"""
AXES = """
[signature.dims]
"*B" = "rows"
N = "columns"

[signature.dtypes]
T = ["float16", "float32"]
"""
EVERYTHING = (
    AXES
    + """
[[signature.params]]
name = "normalized_shape"
type = "shape"
doc = "a shape"

[[signature.params]]
name = "eps"
type = "float"
default = 1e-5
doc = "a number"

[[signature.params]]
name = "scales"
type = "floats"
default = [0.5, 2.0]
doc = "numbers"

[[signature.params]]
name = "scale"
type = "float"
optional = true
keyword_only = true
doc = "a number or None"

[[signature.params]]
name = "mode"
type = "str"
default = "some"
choices = ["some", "all"]
keyword_only = true
doc = "a word"

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B", "N"]
mutated = true
doc = "a tensor"

[[signature.inputs]]
name = "weight"
dtype = "T"
shape = ["*normalized_shape"]
optional = true
doc = "a tensor or None"

[[signature.ints]]
name = "rows"
doc = "a number of the call"

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "N"]
buffer = "out"
doc = "a result"

[[signature.outputs]]
name = "mean"
dtype = "float32"
shape = ["*B"]
when = "weight is not None"
doc = "another"
"""
)
MANY_INPUTS = AXES + "".join(
    f"""
[[signature.{"outputs" if name == "y" else "inputs"}]]
name = "{name}"
dtype = "T"
shape = ["*B", "N"]
doc = "one of many"
"""
    for name in (*(f"input_of_number_{number}" for number in range(9)), "y")
)
TWO_RESULTS = (
    AXES
    + """
[[signature.inputs]]
name = "query"
dtype = "T"
shape = ["*B", "N"]
doc = "a tensor"

[[signature.inputs]]
name = "other"
dtype = "T"
shape = ["*B", "N"]
doc = "a tensor"

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "N"]
doc = "a result"

[[signature.outputs]]
name = "z"
dtype = "T"
shape = ["*B", "N"]
doc = "a result"
"""
)
NO_RESULT = (
    AXES
    + """
[[signature.inputs]]
name = "cache"
dtype = "T"
shape = ["*B", "N"]
mutated = true
doc = "what is written"
"""
)
TABLE = """
[[signature.params]]
name = "length"
type = "int"
doc = "how many"

[[signature.params]]
name = "dtype"
type = "dtype"
default = "float32"
choices = ["float32", "float16"]
keyword_only = true
doc = "of the table"

[[signature.params]]
name = "device"
type = "device"
optional = true
keyword_only = true
doc = "where"

[[signature.outputs]]
name = "y"
dtype = "dtype"
shape = ["length"]
device = "device"
doc = "a table"
"""
COMPOSITE = (
    AXES
    + """
[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B", "N"]
doc = "a tensor"

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "N"]
doc = "a result"

[[composition]]
op = "RMSNormFwdOp"
"""
)


@pytest.fixture(scope="session")
def types_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy made of torch, for all of these tests."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize(
    "signature",
    [EVERYTHING, TWO_RESULTS, NO_RESULT, TABLE, COMPOSITE, MANY_INPUTS],
    ids=["everything", "two-results", "no-result", "table", "composite", "many-inputs"],
)
def test_the_stubs_follow_an_entry_that_is_there(
    acme: Path, signature: str, types_cache: Path
) -> None:
    """Their constructor and forward are the entry's, and they pass style and types."""
    entry = acme / "manifest/src/tileops/manifest/entries/acme/acme_fwd.toml"
    entry.parent.mkdir()
    entry.write_text(HEAD + signature)
    written = new_op.write("acme", "AcmeFwdOp", acme)
    assert entry not in written
    program = (
        "import dataclasses\n"
        "from tileops.core.conformance import check_class\n"
        "from tileops.acme import AcmeFwdOp as op\n"
        "print(*check_class(dataclasses.replace(op.entry, status='implemented'), op))\n"
    )
    done = run(acme, "-c", program)
    assert (done.stdout, done.stderr) == ("\n", "")
    python = [str(path) for path in written if path.suffix == ".py"]
    assert run(acme, "-m", "ruff", "check", *python).stdout == "All checks passed!\n"
    assert run(acme, "-m", "ruff", "format", "--check", *python).returncode == 0
    sources = [path for path in python if "/src/" in path]
    types = run(acme, "-m", "mypy", "--cache-dir", str(types_cache), *sources)
    assert types.returncode == 0, types.stdout


@pytest.mark.parametrize(
    ("family", "name", "message"),
    [
        (
            "acme",
            "AcmeFwdOp",
            "there is no family 'acme'; the families are attention, composite, norm, positional, "
            "and ./tools/new_family makes another",
        ),
        ("norm", "softcap", "'softcap' is no op's class; it is called like RMSNormFwdOp"),
        ("attention", "RMSNormFwdOp", "RMSNormFwdOp has an entry in the family norm"),
        (
            "norm",
            "RMSNormFwdOp",
            "RMSNormFwdOp is there already: its entry says that it is implemented",
        ),
        (
            "norm",
            "GroupNormFwdOp",  # in a folder that it shares
            "GroupNormFwdOp is there already: its entry says that it is implemented",
        ),
        (
            "norm",
            "ArgumentsFwdOp",
            "packages/tileops-norm/src/tileops/norm/arguments.py is there already",
        ),
        (
            "norm",
            "FormulasFwdOp",
            "packages/tileops-norm/tests/test_formulas.py is there already",
        ),
        (
            "norm",
            "LambdaFwdOp",
            "'LambdaFwdOp' is no op's class: its module would be called lambda, a word of Python's",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(
    repository: Path, family: str, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "packages/tileops-norm/tests/test_formulas.py").touch()
    before = sorted(repository.rglob("*"))
    assert new_op.main([family, name], repository) == 1
    assert capsys.readouterr().err == f"new_op: {message}\n"
    assert sorted(repository.rglob("*")) == before


def test_cases_in_one_module_are_split_by_hand(
    acme: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (distributions(acme)["acme"].package / "contracts.py").touch()
    before = sorted(acme.rglob("*"))
    assert new_op.main(["acme", "AcmeScaleFwdOp"], acme) == 1
    assert capsys.readouterr().err == (
        "new_op: packages/tileops-acme/src/tileops/acme/contracts.py is one module; make it the "
        "package contracts/ first, of one module an op or a group of ops\n"
    )
    assert sorted(acme.rglob("*")) == before


def test_a_family_is_whole_and_in_every_list(repository: Path) -> None:
    written = new_family.write("acme", "Acme ops.", repository)
    one = distributions(repository)["acme"]
    assert closure("acme", repository) == ["acme", "manifest", "core"]
    settings = table(repository / "pyproject.toml")["tool"]
    for name in ("build", "isolated"):
        assert "acme" in settings["hatch"]["envs"][name]["matrix"][0]["family"]
    assert "$MYPY_CONFIG_FILE_DIR/packages/tileops-acme/src" in settings["mypy"]["mypy_path"]
    row = "| `packages/tileops-acme/` | `tileops-acme` | Acme ops |\n"
    assert row in (repository / "README.md").read_text("utf-8")
    assert (one.folder / "LICENSE").read_bytes() == (repository / "LICENSE").read_bytes()
    assert changes.faults([], repository) == []
    python = [str(path) for path in written if path.suffix == ".py"]
    assert run(repository, "-m", "ruff", "check", *python).stdout == "All checks passed!\n"
    marked = {place.split(":")[0] for place in new_op.unfilled(repository)}
    assert marked == {
        "packages/tileops-acme/README.md",
        "packages/tileops-acme/src/tileops/acme/__init__.py",
    }


@pytest.mark.parametrize(
    ("family", "summary", "message"),
    [
        ("Conv", "Ops.", "'Conv' is no family; it is one word in small letters, like conv"),
        ("import", "Ops.", "'import' is no family; it is one word in small letters, like conv"),
        ("norm", "Ops.", "there is a family 'norm': "),
        ("acme", "Ops", "'Ops' is no sentence without quotes that ends in a full stop"),
        ("acme", 'An "op".', "is no sentence without quotes that ends in a full stop"),
    ],
)
def test_a_family_that_cannot_be_is_refused(
    repository: Path, family: str, summary: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(repository.rglob("*"))
    assert new_family.main([family, summary], repository) == 1
    assert message in capsys.readouterr().err
    assert sorted(repository.rglob("*")) == before
