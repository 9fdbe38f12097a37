"""What the tools know of the distributions here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import isolated, wheels, workspace
from tools.workspace import closure, dependants, distributions, pinned


def test_a_closure_holds_each_sibling_once() -> None:
    """Every family needs core, which must still be installed and counted once."""
    assert sorted(closure("composite")) == [
        "attention",
        "composite",
        "core",
        "manifest",
        "norm",
        "positional",
    ]
    assert closure("manifest") == ["manifest"]


def test_dependants_are_those_that_need_one_of_them_at_any_distance() -> None:
    assert dependants(["manifest"]) == list(distributions())
    assert dependants(["core"]) == [name for name in distributions() if name != "manifest"]
    assert dependants(["norm"]) == ["composite", "norm"]
    assert dependants([]) == []


def test_a_version_is_read_without_running_the_code(repository: Path) -> None:
    one = distributions(repository)["norm"]
    about = one.package / "__about__.py"
    about.write_text('raise SystemExit\n__version__ = "3.4.5"\n')
    assert one.version == "3.4.5"
    about.write_text("__version__ = version()\n")
    with pytest.raises(ValueError, match=r'__version__ = "…" is expected on a line of its own$'):
        _ = one.version


def test_a_pin_is_an_exact_version(repository: Path) -> None:
    assert pinned("torch") == workspace.pinned("torch", repository)
    with pytest.raises(ValueError, match=r"the default environment pins no version of pytest$"):
        pinned("pytest", repository)


def test_isolated_tests_want_wheels_that_were_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "ROOT", tmp_path)
    with pytest.raises(SystemExit) as caught:
        isolated.wheel(distributions()["norm"])
    assert str(caught.value) == (
        "isolated: dist/ must hold one wheel of tileops-norm; found: none. Run: hatch run build:all"
    )


def test_isolated_tests_refuse_a_wheel_of_another_version(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier version of the code left in dist/ says nothing of this one."""
    wheel = build(repository, "norm", repository / "dist")
    monkeypatch.setattr(isolated, "ROOT", repository)
    one = distributions(repository)["norm"]
    assert isolated.wheel(one) == wheel
    built = one.version
    (one.package / "__about__.py").write_text('__version__ = "7.0.0"\n')
    with pytest.raises(SystemExit) as caught:
        isolated.wheel(one)
    assert str(caught.value) == (
        f"isolated: dist/ holds tileops-norm {built}, and its code is at 7.0.0. "
        "Run: hatch run build:all"
    )


@pytest.mark.parametrize("name", ["notes.txt", "weights.bin", "sub/__init__.pyi", "op.toml"])
def test_a_wheel_holds_nothing_but_code_and_data_of_its_own(repository: Path, name: str) -> None:
    one = distributions(repository)["norm"]
    stray = one.package / name
    stray.parent.mkdir(exist_ok=True)
    stray.touch()
    wheel = build(repository, "norm", repository / "dist")
    assert wheels.faults(wheel, one) == [
        f"{wheel.name} holds tileops/norm/{name}, which is no part of it"
    ]


def test_a_wheel_lacks_nothing(repository: Path) -> None:
    one = distributions(repository)["norm"]
    (one.package / "py.typed").unlink()
    (one.package / "left_out.py").touch()
    (one.folder / "LICENSE").unlink()
    settings = one.folder / "pyproject.toml"
    text = settings.read_text().replace('license-files = ["LICENSE"]\n', "")
    settings.write_text(text + '\n[tool.hatch.build]\nexclude = ["left_out.py"]\n')
    wheel = build(repository, "norm", repository / "dist")
    info = f"tileops_norm-{one.version}.dist-info"
    assert wheels.faults(wheel, distributions(repository)["norm"]) == [
        f"{wheel.name} lacks tileops/norm/left_out.py",
        f"{wheel.name} lacks tileops/norm/py.typed",
        f"{wheel.name} lacks {info}/licenses/LICENSE",
    ]


def build(repository: Path, family: str, output: Path) -> Path:
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheels")
    from hatchling.builders.wheel import WheelBuilder

    builder = WheelBuilder(str(distributions(repository)[family].folder))
    [wheel] = builder.build(directory=str(output), versions=["standard"])
    return Path(wheel)
