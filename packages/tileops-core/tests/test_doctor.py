"""``tileops doctor`` names what is in the way, and ``tileops ops`` what there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tileops.core import doctor, families
from tileops.core.cli import main
from tileops.core.errors import FamilyError


def distribution(site: Path, name: str, version: str, metadata: str = "", points: str = "") -> None:
    """An installed distribution, as far as metadata goes."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
    )
    (folder / "entry_points.txt").write_text(points)


def run_doctor(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "tileops.core", *(arguments or ("doctor",))],
        env={**os.environ, "PYTHONPATH": path, "TILEOPS_TARGET": "nowhere"},
        capture_output=True,
        text=True,
    )


def test_it_says_what_is_installed_and_that_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for subject in ("python", "tileops-core", "tileops-manifest", "torch", "nvcc", "targets"):
        assert f"  {subject} " in out
    assert "WRONG" not in out


def test_everything_that_is_in_the_way_at_once(tmp_path: Path) -> None:
    """Skew, a foreign package of the same name, a broken family and plugin, a missing target."""
    distribution(tmp_path, "tileops", "0.1.0")
    distribution(
        tmp_path,
        "tileops-future",
        "9.0.0",
        "Requires-Dist: tileops-core~=9.0.0\nRequires-Dist: tileops-other~=1.0.0\n",
        "[tileops.families]\nfuture = no_such_module_of_ours\n"
        "[tileops.targets]\nphantom = no_such_module_of_ours:target\n",
    )
    result = run_doctor(tmp_path)
    assert result.returncode == 1
    wrong = [line for line in result.stdout.splitlines() if line.startswith("WRONG")]
    from importlib.metadata import version

    core = version("tileops-core")
    assert wrong == [
        "WRONG  tileops                 0.1.0: another project's package, which owns the same "
        "import name; uninstall it, or keep the two in environments of their own",
        f"WRONG  tileops-future          needs tileops-core~=9.0.0, and tileops-core {core} is "
        "installed: pip install 'tileops-core~=9.0.0'",
        "WRONG  tileops-future          needs tileops-other~=1.0.0, which is not installed: "
        "pip install 'tileops-other~=1.0.0'",
        "WRONG  families                1 installed families could not be imported: future "
        "(no_such_module_of_ours): ModuleNotFoundError: No module named 'no_such_module_of_ours'; "
        "mend or uninstall them (`tileops doctor` shows the versions of all that is installed)",
        "WRONG  default target          'nowhere', which there is not",
        "WRONG  target plugin           the target plugin 'phantom' "
        "(no_such_module_of_ours:target) failed to load: ModuleNotFoundError: No module named "
        "'no_such_module_of_ours'",
    ]


def test_a_package_that_hides_the_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tileops").mkdir()
    marker = tmp_path / "tileops" / "__init__.py"
    marker.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert (
        "WRONG",
        "import tileops",
        f"{marker} makes tileops a package of its own and hides the families; take it off sys.path",
    ) in list(doctor.diagnose())


def test_families_that_can_be_imported_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is broken is named, and keeps none of the others away."""
    loaded = []

    class Point:
        def __init__(self, name: str, error: Exception | None = None) -> None:
            self.name, self.value, self.error = name, f"tileops.{name}", error

        def load(self) -> Any:
            if self.error is not None:
                raise self.error
            loaded.append(self.name)

    points = [Point("b"), Point("a", ImportError("no")), Point("c")]
    monkeypatch.setattr(families, "entry_points", lambda *, group: points)
    with pytest.raises(FamilyError) as error:
        families.load_families()
    assert str(error.value) == (
        "1 installed families could not be imported: a (tileops.a): ImportError: no; mend or "
        "uninstall them (`tileops doctor` shows the versions of all that is installed)"
    )
    assert loaded == ["b", "c"]
    assert isinstance(error.value, ImportError)
    monkeypatch.setattr(families, "entry_points", lambda *, group: points[::2])
    assert families.load_families() == ("b", "c")


def test_ops_lists_each_op_with_its_operators(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    assert main(["ops"]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if " RMSNormFwdOp " in x)
    assert line.split() == ["norm", "RMSNormFwdOp", "tileops::norm_rms_norm_fwd"]


def test_a_broken_family_takes_no_other_from_the_command_lines(tmp_path: Path) -> None:
    pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    distribution(
        tmp_path, "tileops-future", "9.0.0", points="[tileops.families]\nfuture = no_such_of_ours\n"
    )
    reason = (
        "1 installed families could not be imported: future (no_such_of_ours): "
        "ModuleNotFoundError: No module named 'no_such_of_ours'; mend or uninstall them (`tileops "
        "doctor` shows the versions of all that is installed)\n"
    )
    listed = run_doctor(tmp_path, "ops")
    assert (listed.returncode, listed.stderr) == (1, f"tileops: {reason}")
    assert "tileops::norm_rms_norm_fwd" in listed.stdout
    shown = run_doctor(tmp_path, "show", "RMSNormFwdOp")
    assert (shown.returncode, shown.stderr) == (0, f"tileops: {reason}")
    assert shown.stdout.startswith("RMSNormFwdOp  (norm, ")
    built = run_doctor(tmp_path, "build", "--arch", "sm_90a")
    assert (built.returncode, built.stderr) == (1, f"tileops build: {reason}")


def test_requirements_are_read_however_they_are_written(tmp_path: Path) -> None:
    """A package of somebody's own may write them in any way that pip takes."""
    distribution(
        tmp_path,
        "acme-ops",
        "1.0.0",
        "".join(
            f"Requires-Dist: {text}\n"
            for text in (
                "tileops-core>=0.1.0",
                "tileops_manifest (<9,>=0.1)",
                "tileops-core",
                "Tileops.Core[fast]>=99; python_version >= '3.10'",
                "tileops-core===0.1.0",
                "tileops-never~=1.0.0; extra == 'dev'",
            )
        ),
        "[tileops.entries]\n",
    )
    distribution(tmp_path, "tileops-mine", "1.0.0", "Requires-Dist: tileops-core<0.1\n")
    from importlib.metadata import version

    core = version("tileops-core")
    out = run_doctor(tmp_path).stdout.splitlines()
    found = [x.split(None, 2)[2] for x in out if "needs tileops" in x or "needs Tileops" in x]
    assert found == [
        f"needs tileops-core<0.1, and tileops-core {core} is installed: "
        "pip install 'tileops-core<0.1'",
    ]


def test_a_folder_that_would_be_below_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(tmp_path / "file"))
    assert (
        "note",
        "kernel store",
        f"{tmp_path / 'file' / 'kernels'} cannot be written: kernels are built again in each "
        f"process",
    ) in list(doctor.diagnose())
