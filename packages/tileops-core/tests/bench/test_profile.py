"""What a profile says bounds a workload."""

from __future__ import annotations

import stat
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tileops.core.bench.profile import METRICS, _judgement, by_ncu, by_torch, parse_ncu
from tileops.core.cli import main
from tileops.core.errors import BenchError

CPU = torch.device("cpu")
NAMES = ["ID", "Kernel Name", *METRICS]
UNITS = ["", "", "usecond", "%", "%", "%", "Mbyte", "%", "register/thread"]
BUSY = ["0", "scale", "6.50", "91.2", "40", "20", "1,033.5", "50", "32"]
IDLE = ["1", "tail", "2", "10", "40", "20", "0.5", "50", "32"]


def table(*rows: list[str]) -> list[str]:
    return [",".join(f'"{cell}"' for cell in row) for row in rows]


def planted(folder: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], code: int = 0) -> None:
    """An ``ncu`` that prints ``lines`` and runs nothing."""
    tool = folder / "ncu"
    text = "\n".join(lines)
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_each_kernel_is_bound_by_its_busiest_unit(
    ops: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(tmp_path, monkeypatch, ["==PROF== Connected", *table(NAMES, UNITS, BUSY, IDLE)])
    cls = ops.BenchScaleFwdOp
    assert list(by_ncu(cls, cls.entry.workloads[0], CPU)) == [
        "BenchScaleFwdOp small by Nsight Compute, clocks as found",
        "  scale",
        "    6.50 us, 1033.50 MB of DRAM; DRAM 91.2%, L2 40.0%, SM 20.0% of peak; 50% of warps "
        "active, 32 registers",
        "    bound by DRAM",
        "  tail",
        "    2.00 us, 0.50 MB of DRAM; DRAM 10.0%, L2 40.0%, SM 20.0% of peak; 50% of warps "
        "active, 32 registers",
        "    bound by latency: no unit is busy",
    ]


def test_what_ncu_cannot_do_is_said(
    ops: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = ops.BenchScaleFwdOp
    planted(tmp_path, monkeypatch, ["==ERROR== ERR_NVGPUCTRPERM"], code=1)
    with pytest.raises(BenchError) as raised:
        list(by_ncu(cls, cls.entry.workloads[0], CPU))
    assert str(raised.value) == "ncu failed with code 1: ==ERROR== ERR_NVGPUCTRPERM"
    planted(tmp_path, monkeypatch, ["==WARNING== No kernels were profiled."])
    with pytest.raises(BenchError) as raised:
        list(by_ncu(cls, cls.entry.workloads[0], CPU))
    assert str(raised.value) == "ncu saw no kernel in a call of BenchScaleFwdOp on cpu"
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(BenchError) as raised:
        list(by_ncu(cls, cls.entry.workloads[0], CPU))
    assert str(raised.value) == "ncu is not on the path: it comes with the CUDA toolkit"


def test_an_unknown_unit_is_not_taken_for_another() -> None:
    units = [*UNITS[:2], "fortnight", *UNITS[3:]]
    with pytest.raises(BenchError) as raised:
        parse_ncu(table(NAMES, units, BUSY))
    assert str(raised.value) == (
        "ncu gave gpu__time_duration.sum in 'fortnight', which is not understood"
    )


def test_the_pytorch_profiler_lists_what_ran(ops: ModuleType) -> None:
    cls = ops.BenchScaleFwdOp
    lines = list(by_torch(cls, cls.entry.workloads[0], CPU))
    assert lines[0] == "BenchScaleFwdOp small by the PyTorch profiler, us of a call"
    assert any(line.endswith("  aten::mul") for line in lines)
    assert lines[-1].startswith("bound by ")


@pytest.mark.parametrize(
    ("memory", "matrix", "host", "text"),
    [
        (0.9, 0.1, 1e-6, "bound by memory"),
        (0.3, 0.7, 1e-6, "bound by arithmetic"),
        (0.9, 0.1, 9e-6, "bound by the host: it launches more slowly than the device works"),
        (
            0.3,
            0.1,
            1e-6,
            "bound by neither: more bytes than the least, latency, or work that is not counted",
        ),
    ],
)
def test_the_busier_ceiling_bounds(memory: float, matrix: float, host: float, text: str) -> None:
    assert list(_judgement(memory, matrix, 5e-6, host))[-1] == text


@pytest.mark.usefixtures("ops")
def test_a_profile_is_of_one_workload(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--op", "BenchScaleFwdOp", "--profile", "torch"]) == 1
    assert capsys.readouterr().err == (
        "tileops bench: a profile is of one workload, and 2 are chosen: name it with --op and "
        "--workload\n"
    )
