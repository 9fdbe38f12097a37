"""The command line's options, as the commands get them."""

from __future__ import annotations

from typing import Any

import pytest

from tileops.core import build_command
from tileops.core.bench import command as bench_command
from tileops.core.cli import main
from tileops.core.contract import command as contract_command


def test_an_option_that_is_given_twice_adds_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tileops build --op A --op B` built B alone, and said nothing."""
    got: list[Any] = []

    def take(*arguments: Any) -> int:
        got.extend(arguments)
        return 0

    monkeypatch.setattr(build_command, "build_all", take)
    build = (
        "build --op A --op B C --family f --family g --workload w --workload x --arch a --arch b"
    )
    assert main(build.split()) == 0
    choice, archs = got[:2]
    assert (choice.ops, choice.families, choice.workloads) == (
        ["A", "B", "C"],
        ["f", "g"],
        ["w", "x"],
    )
    assert archs == ["a", "b"]

    got.clear()
    monkeypatch.setattr(bench_command, "bench", take)
    bench = "bench --op A --op B --family f --family g --workload w --workload x --peer p --peer q"
    assert main([*bench.split(), "--measure", "device", "--measure", "host"]) == 0
    (options,) = got
    choice = options.choice
    assert (choice.ops, choice.families, choice.workloads) == (["A", "B"], ["f", "g"], ["w", "x"])
    assert (options.peers, options.measures) == (["p", "q"], ["device", "host"])

    got.clear()
    monkeypatch.setattr(contract_command, "contract", take)
    contract = "contract --op A --op B --family f --family g --target t --target u --device cpu"
    assert main([*contract.split(), "--device", "cuda"]) == 0
    (options,) = got
    assert (options.choice.ops, options.choice.families) == (["A", "B"], ["f", "g"])
    assert (options.targets, options.devices) == (["t", "u"], ["cpu", "cuda"])


def test_an_option_that_is_left_out_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []
    monkeypatch.setattr(bench_command, "bench", lambda options: got.append(options) or 0)
    for arguments in (["bench"], ["bench", "--peer"], ["bench"]):
        assert main(arguments) == 0
    assert [options.peers for options in got] == [None, [], None]
    assert [options.choice.ops for options in got] == [[], [], []]
