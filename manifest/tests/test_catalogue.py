"""Level 2: what only several entries together can get wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tileops.manifest.validate import validate_files

Make = Callable[..., str]
Check = Callable[..., list[str]]


@pytest.fixture
def check(tmp_path: Path, entry_text: Make, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Return the faults of composites, each given as its name and the ops that it is made of."""
    monkeypatch.chdir(tmp_path)

    def faults(**compositions: list[str]) -> list[str]:
        files = []
        for name, parts in compositions.items():
            path = tmp_path / "norm" / f"{name.lower()}.toml"
            path.parent.mkdir(exist_ok=True)
            rows = "".join(f'[[composition]]\nop = "{part}"\n\n' for part in parts)
            text = entry_text(("ScaleFwdOp", name), ("[roofline]", f"{rows}[roofline]"))
            path.write_text(text, encoding="utf-8")
            files.append((path, "tileops"))
        return [str(fault) for fault in validate_files(files).faults]

    return faults


def test_composites_of_composites_are_right(check: Check) -> None:
    assert check(A=["B", "C"], B=["C"], C=[]) == []


def test_an_op_that_is_made_of_itself(check: Check) -> None:
    assert check(A=["A"]) == [
        "norm/a.toml:51: a composite is made of other ops; found A itself; name what it is made of"
    ]


def test_an_unknown_op(check: Check) -> None:
    assert check(Alpha=["Gama"], Gamma=[]) == [
        "norm/alpha.toml:51: a composition names ops that have entries; found 'Gama'; did you "
        "mean 'Gamma'?"
    ]


def test_a_cycle_is_shown_from_each_of_its_members(check: Check) -> None:
    mend = "take one of these out of the other"
    assert check(A=["B"], B=["C"], C=["A"], D=["A"]) == [
        f"norm/a.toml:51: a composition has no cycle; found A → B → C → A; {mend}",
        f"norm/b.toml:51: a composition has no cycle; found B → C → A → B; {mend}",
        f"norm/c.toml:51: a composition has no cycle; found C → A → B → C; {mend}",
    ]


def test_counts_and_conditions_read_params(
    tmp_path: Path, entry_text: Make, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    assert check(B=[]) == []
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "norm" / "scale_fwd.toml"
    rows = '[[composition]]\nop = "B"\ncount = "N"\nwhen = "eps"\n\n[roofline]'
    path.write_text(entry_text(("[roofline]", rows)), encoding="utf-8")
    files = [(path, "tileops"), (tmp_path / "norm" / "b.toml", "tileops")]
    assert [str(fault) for fault in validate_files(files).faults] == [
        "norm/scale_fwd.toml:52: composition[0].count: 'N' is not known here; found 'N'; the names "
        "here are eps; declare others",
        "norm/scale_fwd.toml:53: composition[0].when is a condition; found 'eps', a float or None; "
        "write a condition",
    ]


def write(path: Path, text: str) -> tuple[Path, str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path, "tileops"


def test_two_entries_of_one_name(
    tmp_path: Path, entry_text: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [
        write(tmp_path / "conv" / "scale_fwd.toml", entry_text(('"norm"', '"conv"'))),
        write(tmp_path / "norm" / "scale_fwd.toml", entry_text()),
    ]
    assert [str(fault) for fault in validate_files(files).faults] == [
        "norm/scale_fwd.toml:1: an op has one entry, and conv/scale_fwd.toml is that of "
        "ScaleFwdOp; found a second one; rename the op, or remove one of the two"
    ]


def test_two_ops_of_one_operator(
    tmp_path: Path, entry_text: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second registration would replace the first, or fail when a family is imported."""
    monkeypatch.chdir(tmp_path)
    files = [
        write(tmp_path / "norm" / "scale_fwd.toml", entry_text()),
        write(
            tmp_path / "norm" / "norm_scale_fwd.toml", entry_text(("ScaleFwdOp", "NormScaleFwdOp"))
        ),
    ]
    assert [str(fault) for fault in validate_files(files).faults] == [
        "norm/norm_scale_fwd.toml:1: two ops have different operators, and norm/scale_fwd.toml "
        "has tileops::norm_scale_fwd; found ScaleFwdOp and NormScaleFwdOp; rename one of the two"
    ]


def test_a_folder_may_have_a_colon(
    tmp_path: Path, entry_text: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = []
    for folder in ("a:b", "c"):
        path = tmp_path / folder / "norm" / "scale_fwd.toml"
        path.parent.mkdir(parents=True)
        path.write_text(entry_text(), encoding="utf-8")
        files.append((path, "tileops"))
    assert [str(fault) for fault in validate_files(files).faults] == [
        "c/norm/scale_fwd.toml:1: an op has one entry, and a:b/norm/scale_fwd.toml is that of "
        "ScaleFwdOp; found a second one; rename the op, or remove one of the two"
    ]
