"""An op of somebody's own package works as the in-tree ones do: the example of docs/own-ops.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from own_ops import install, run

OPERATOR = "acme::logits_softcap_fwd"

USES = """
import json, logging, sys, torch
import tileops.core
from tileops.core import contract, conformance, errors
from acme_ops import SoftcapFwdOp
said = {}
x = torch.tensor([0.5, 40.0])
wanted = 30 * torch.tanh(x / 30)
op = SoftcapFwdOp()
said["names"] = SoftcapFwdOp.compile_op_names
said["eager"] = torch.allclose(op(x), wanted)
said["serving"] = [op.serving_target]
own = SoftcapFwdOp(target="acme")
said["own target"] = torch.allclose(own(x), wanted)
said["serving"].append(own.serving_target)
for name, call in {
    "shape": lambda: op([1.0]),
    "dtype": lambda: op(x.double()),
    "param": lambda: SoftcapFwdOp(-1.0),
    "target": lambda: own(x.bfloat16()),
    "tilelang": lambda: SoftcapFwdOp(target="tilelang")(x),
}.items():
    try:
        call()
    except errors.TileOpsError as error:
        said[name] = f"{type(error).__name__}: {error}"
contract.load_contracts()
said["without case"] = contract.ops_without_case()
(case,) = contract.cases("logits")
said["graph"] = contract.check_cold_compile(
    case, device=torch.device("cpu"), backend="aot_eager"
).calls
tileops.core.warm_up_done()
SoftcapFwdOp(target="acme")(x)
said["late"] = [tileops.core.builds_after_warm_up()]
said["roofline"] = op.roofline(x)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.op = SoftcapFwdOp.shared()

    def forward(self, x):
        return self.op(x)

torch.export.save(torch.export.export(Model(), (x,)), sys.argv[1])
print(json.dumps(said))
"""

LOADS = """
import sys, torch
import tileops.core
tileops.core.load_families()
x = torch.tensor([0.5, 40.0])
y = torch.export.load(sys.argv[1]).module()(x)
print(torch.allclose(y, 30 * torch.tanh(x / 30)))
"""


# One process for all of them: each would import torch anew.
COMMANDS = """
import contextlib, io, json
from tileops.core.cli import main
from tileops.manifest import cli as manifest
said = {}
for run, words in (
    (main, "ops"),
    (main, "show SoftcapFwdOp"),
    (main, "doctor"),
    (main, "build --arch sm_90a --op SoftcapFwdOp"),
    (main, "contract --family logits --device cpu"),
    (manifest.main, "validate"),
):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words.split())
    said[words.split()[0]] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def said(site: Path) -> dict[str, Any]:
    result = run(site, "-c", USES, str(site / "model.pt2"))
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_it_computes_under_a_namespace_of_its_own(said: dict[str, Any]) -> None:
    """Its operator can never meet one of ours."""
    assert said["names"] == [OPERATOR]
    assert said["eager"]
    assert said["graph"] == [[OPERATOR]] or said["graph"] == [[f"{OPERATOR}.default"]]


def test_its_calls_are_checked_in_the_words_of_its_entry(said: dict[str, Any]) -> None:
    assert (
        said["shape"]
        == "ArgumentError: SoftcapFwdOp: x is of type list, but the signature needs a Tensor"
    )
    assert said["dtype"] == (
        "ArgumentError: SoftcapFwdOp: x has dtype float64, but the signature needs T = float32 or "
        "bfloat16"
    )
    assert said["param"] == "ParamError: SoftcapFwdOp: cap is -1.0; it is above 0"


def test_its_target_serves_it_and_says_what_it_cannot(said: dict[str, Any]) -> None:
    assert said["own target"]
    assert said["serving"] == ["reference", "acme"]
    assert said["target"] == (
        "TargetError: SoftcapFwdOp: the target 'acme' serves softcap in float32; use "
        "target='reference'"
    )


def test_what_its_target_builds_takes_part_in_the_alarm(said: dict[str, Any]) -> None:
    """The program was there: it is found by its identity, whichever instance asks."""
    assert said["late"] == [0]


def test_its_contract_case_is_found_and_holds(said: dict[str, Any]) -> None:
    """In one registry with ours, and missed by name if it were not there."""
    assert said["without case"] == []
    assert said["roofline"] == [6, 16]


def test_a_fresh_process_loads_a_program_that_holds_it(site: Path, said: dict[str, Any]) -> None:
    """By the families' entry points: nothing in that process names the package."""
    result = run(site, "-c", LOADS, str(site / "model.pt2"))
    assert result.stdout == "True\n", result.stderr


@pytest.fixture(scope="module")
def commands(site: Path) -> dict[str, Any]:
    """Each command's exit code, output and errors."""
    result = run(site, "-c", COMMANDS)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_command_lines_see_it(commands: dict[str, Any]) -> None:
    code, out, _ = commands["ops"]
    assert code == 0
    assert ["logits", "SoftcapFwdOp", OPERATOR] in [line.split() for line in out.splitlines()]
    code, out, _ = commands["show"]
    assert code == 0
    assert out.startswith("SoftcapFwdOp  (logits, implemented since 1.0.0)\n")
    code, out, _ = commands["doctor"]
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert ["ok", "acme-ops", "1.2.0"] in lines
    for subject, word in (("families", "logits"), ("targets", "acme")):
        assert any(line[1] == subject and word in line[2].split(", ") for line in lines)
    assert (code, "WRONG" in out) == (0, False)


def test_build_says_that_it_has_no_kernels_of_ours(commands: dict[str, Any]) -> None:
    """It used to stop with NotImplementedError, and with it every other op's build."""
    _, out, _ = commands["build"]
    text = (
        "SoftcapFwdOp: the target 'tilelang' has no kernels of this op; use target='reference', or "
        "the target of a package that has some"
    )
    assert out.splitlines()[0] == (
        f"[1/1] SoftcapFwdOp sm_90a for gemma-2-9b-decode: not served: {text}"
    )


def test_its_contract_holds_by_both_targets(commands: dict[str, Any]) -> None:
    """Every check: in this process, and in fresh ones, which find the package as this one does."""
    code, out, err = commands["contract"]
    assert code == 0, out + err
    lines = out.splitlines()
    assert "SoftcapFwdOp-float32 on cpu by reference: 17 held, 2 not applicable" in lines
    assert "SoftcapFwdOp-float32 on cpu by acme: 12 held, 2 not applicable" in lines
    for check in ("second-process", "export"):
        assert any(line.split()[:2] == [check, "1"] for line in lines)


def test_its_entry_is_validated_against_its_class(commands: dict[str, Any], tmp_path: Path) -> None:
    """The manifest's third level: here the class names its input otherwise."""
    code, out, err = commands["validate"]
    assert (code, out) == (0, "")
    assert err.endswith(" entries conform to what is installed\n")
    broken = install(tmp_path, **{"def forward(self, x)": "def forward(self, logits)"})
    result = run(broken, "-m", "tileops.manifest.cli", "validate")
    assert result.returncode == 1
    assert result.stdout == (
        f"{tmp_path}/acme_ops/entries/logits/softcap_fwd.toml: forward takes the entry's inputs: "
        "(x); found (logits); mend SoftcapFwdOp.forward or signature.inputs\n"
    )


def test_a_name_of_ours_is_a_clear_error_and_ours_goes_on_working(tmp_path: Path) -> None:
    """An entry of the same name used to make the whole norm family fail to import."""
    pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    site = install(tmp_path, SoftcapFwdOp="RMSNormFwdOp", softcap_fwd="rms_norm_fwd")
    program = (
        "import tileops.norm, tileops.manifest.load as load\n"
        "from tileops.core.errors import DefinitionError\n"
        "first = next(load.entry_roots()[0].path.glob('norm/rms_norm_fwd.toml'))\n"
        "from tileops.manifest.faults import shown_path\n"
        "print(shown_path(first))\n"
        "print(tileops.norm.RMSNormFwdOp.compile_op_names)\n"
        "try: import acme_ops\n"
        "except DefinitionError as error: print(error)\n"
    )
    result = run(site, "-c", program)
    assert result.returncode == 0, result.stderr
    first, names, *error = result.stdout.splitlines()
    assert names == "('tileops::norm_rms_norm_fwd',)"
    second = f"{tmp_path}/acme_ops/entries/logits/rms_norm_fwd.toml"
    fault = ":1: RMSNormFwdOp has one entry; found 2; rename the op, or pass family="
    assert error == [
        "acme_ops.softcap.RMSNormFwdOp is an op and needs a manifest entry of its name: "
        f"{first}{fault}",
        f"{second}{fault}",
    ]


def test_a_package_that_offers_what_is_not_there_is_shown_by_doctor(tmp_path: Path) -> None:
    """Its entries and its contracts, each with the entry point that is wrong."""
    site = install(tmp_path, **{"acme_ops.entries": "acme_ops.entires"})
    (site / "acme_ops" / "contracts.py").write_text("import no_such_module\n")
    wrong = [
        " ".join(line.split())
        for line in run(site, "-m", "tileops.core", "doctor").stdout.splitlines()
        if line.startswith("WRONG")
    ]
    assert (
        "WRONG entries acme-ops/entry_points.txt: the entry point acme = acme_ops.entires of "
        "tileops.entries names a folder of entries; found no such folder; mend it, or uninstall "
        "acme-ops"
    ) in wrong
    assert any(line.startswith("WRONG families 1 installed families could not") for line in wrong)
    assert any(line.startswith("WRONG contracts logits (acme_ops.contracts)") for line in wrong)
