"""Wheels of several versions side by side, as a user's installer leaves them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.installs.environments import Environment
from tools.workspace import closure, distributions

Make = Callable[..., Environment]

NORM = """
import torch
from tileops.norm import RMSNormFwdOp
x = torch.randn(3, 32)
torch.testing.assert_close(RMSNormFwdOp(32)(x), torch.nn.functional.rms_norm(x, (32,)))
print("right")
"""

WHAT_IS_THERE = """
import sys, torch
for name in {names}:
    __import__(f"tileops.{{name}}")
from tileops.core import contract, load_families
print(sorted(load_families()))
contract.load_contracts()
print([case.name for case in contract.cases()], contract.ops_without_case())
print(sorted(str(o) for o in torch._C._dispatch_get_all_op_names() if o.startswith("tileops")))
"""


@pytest.mark.parametrize("together", [True, False], ids=["at-once", "one-by-one"])
def test_the_order_of_installing_is_no_matter(environment: Make, together: bool) -> None:
    """No distribution overwrites a file of another, and what is resolved is the same."""
    wheels = ["tileops-norm", "tileops-attention", "tileops-positional"]
    found = []
    for number, order in enumerate(itertools.islice(itertools.permutations(wheels), 0, 6, 3)):
        made = environment(f"environment-{number}")
        for step in [order] if together else [[one] for one in order]:
            made.install(*step)
        assert set(made.versions()) == {"attention", "core", "manifest", "norm", "positional"}
        found.append(made.run(WHAT_IS_THERE.format(names=["norm", "attention"])))
    assert found[0].startswith("['attention', 'norm', 'positional']\n")
    assert found[0] == found[1]


def test_families_are_imported_in_either_order(environment: Make) -> None:
    made = environment()
    made.install("tileops-composite")
    names = [family for family in closure("composite") if family != "manifest"]
    found = {made.run(WHAT_IS_THERE.format(names=order)) for order in (names, names[::-1])}
    assert len(found) == 1
    assert "tileops::norm_rms_norm_fwd" in found.pop()


def test_each_family_brings_its_closure_and_nothing_else(environment: Make) -> None:
    for family in distributions():
        made = environment(family)
        made.install(f"tileops-{family}")
        assert set(made.versions()) == set(closure(family))


def test_one_family_is_upgraded_beside_older_siblings(environment: Make) -> None:
    """A patch release of one family moves nothing else, and all of them go on working."""
    made = environment()
    made.house.build("norm", "0.1.1")
    made.install("tileops-norm==0.1.0", "tileops-attention")
    before = made.versions()
    made.install("tileops-norm==0.1.1")
    assert made.versions() == {**before, "norm": "0.1.1"}
    assert made.run(NORM) == "right\n"
    assert "WRONG" not in made.command("doctor")


def test_an_upgrade_takes_along_the_siblings_that_it_needs(environment: Make) -> None:
    """The other families stay where they were, and refuse what they were not made for."""
    made = environment()
    for family in ("manifest", "core", "norm"):
        made.house.build(family, "0.2.0", "~=0.2.0")
    made.install("tileops-norm==0.1.0", "tileops-attention==0.1.0")
    made.install("tileops-norm==0.2.0")
    assert made.versions() == {
        "attention": "0.1.0",
        "core": "0.2.0",
        "manifest": "0.2.0",
        "norm": "0.2.0",
    }
    assert made.run(NORM) == "right\n"
    assert made.refusal("import tileops.attention") == (
        "tileops.manifest.versions.VersionSkewError: tileops-attention 0.1.0 needs "
        "tileops-core~=0.1.0, and tileops-core 0.2.0 is installed; it needs "
        "tileops-manifest~=0.1.0, and tileops-manifest 0.2.0 is installed; mend it with: pip "
        "install 'tileops-core~=0.1.0' 'tileops-manifest~=0.1.0', or install a tileops-attention "
        "that fits"
    )
    made.house.build("attention", "0.2.0", "~=0.2.0")
    made.install("--upgrade", "tileops-attention")
    assert made.run("import tileops.attention; print('there')") == "there\n"


def test_an_installer_refuses_families_that_need_different_siblings(environment: Make) -> None:
    made = environment()
    for family in ("manifest", "core", "norm"):
        made.house.build(family, "0.2.0", "~=0.2.0")
    said = " ".join(
        made.install("tileops-norm==0.2.0", "tileops-attention==0.1.0", check=False).split()
    )
    assert "tileops-norm==0.2.0" in said
    assert "tileops-attention==0.1.0" in said
    assert made.versions() == {}


def test_skew_is_refused_with_both_versions_and_the_mend_works(environment: Make) -> None:
    """``--no-deps``, or an installer that looks at one requirement alone, leaves such a set."""
    made = environment()
    made.house.build("core", "0.2.0")
    made.install("tileops-norm")
    made.install("--no-deps", "tileops-core==0.2.0")
    assert made.refusal("import tileops.norm") == (
        "tileops.manifest.versions.VersionSkewError: tileops-norm 0.1.0 needs tileops-core~=0.1.0, "
        "and tileops-core 0.2.0 is installed; mend it with: pip install 'tileops-core~=0.1.0', or "
        "install a tileops-norm that fits"
    )
    made.install("tileops-core~=0.1.0")
    assert made.run(NORM) == "right\n"


def test_a_family_is_uninstalled_and_the_others_stay_whole(environment: Make) -> None:
    made = environment()
    made.install("tileops-norm", "tileops-attention")
    made.uninstall("tileops-attention")
    assert made.run(NORM) == "right\n"
    assert "attention" not in made.run(WHAT_IS_THERE.format(names=["norm"]))
    assert list(made.folder.glob("lib/python*/site-packages/tileops/attention")) == []
    assert "WRONG" not in made.command("doctor")


def test_what_an_uninstalled_family_leaves_without_it_says_so(environment: Make) -> None:
    made = environment()
    made.install("tileops-composite")
    made.uninstall("tileops-norm")
    assert made.refusal("import tileops.composite") == (
        "tileops.manifest.versions.VersionSkewError: tileops-composite 0.1.0 needs "
        "tileops-norm~=0.1.0, and tileops-norm is not installed; mend it with: pip install "
        "'tileops-norm~=0.1.0', or install a tileops-composite that fits"
    )
    assert made.run("import tileops.attention; print('there')") == "there\n"
    made.install("tileops-norm~=0.1.0")
    assert made.run("import tileops.composite; print('there')") == "there\n"


@pytest.mark.parametrize("editable", ["norm", "core", "manifest"])
def test_an_editable_install_works_beside_wheels(environment: Make, editable: str) -> None:
    """Someone who works on one distribution has the others from wheels."""
    pytest.importorskip("editables", reason="needs editables, which editable wheels are made with")
    made = environment()
    sources = made.house.sources(editable, "0.1.0", "~=0.1.0")
    made.install("tileops-norm", "tileops-attention")
    made.install("--no-deps", "--no-build-isolation", "--editable", str(sources))
    shown = "import tileops.manifest, tileops.core, tileops.norm, tileops.attention\n"
    shown += "for one in (tileops.manifest, tileops.core, tileops.norm, tileops.attention):\n"
    shown += "    print(one.__file__)\n"
    inside = {
        name: Path(file).is_relative_to(sources)
        for name, file in zip(
            ("manifest", "core", "norm", "attention"), made.run(shown).splitlines(), strict=True
        )
    }
    assert inside == {name: name == editable for name in inside}
    assert made.run(NORM) == "right\n"
    assert "WRONG" not in made.command("doctor")
