"""Programs are built once, and a build that fails leaves nothing behind."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import pytest
import torch

from tileops.core.errors import KernelBuildError, TargetError
from tileops.core.kernels import iter_programs, program_for

CPU = torch.device("cpu")


def get(identity: Any, build: Any) -> Any:
    return program_for(identity, build, device=CPU, op="SomeOp", shape="[3]")


def test_one_build_under_eight_cold_threads() -> None:
    identity, builds, programs = uuid.uuid4().hex, [], []

    def build() -> object:
        builds.append(threading.get_ident())
        time.sleep(0.05)
        return object()

    threads = [
        threading.Thread(target=lambda: programs.append(get(identity, build))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert len(programs) == 8
    assert len(set(map(id, programs))) == 1


def test_two_identities_build_side_by_side() -> None:
    """One lock for all would make every cold kernel of a model wait for the one before."""
    meet = threading.Barrier(2, timeout=10)

    def build() -> object:
        meet.wait()
        return object()

    threads = [threading.Thread(target=get, args=(uuid.uuid4().hex, build)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not meet.broken


def test_a_failed_build_is_typed_and_the_next_one_works() -> None:
    identity = uuid.uuid4().hex

    def fails() -> object:
        raise RuntimeError("nvcc said no")

    with pytest.raises(KernelBuildError) as error:
        get(identity, fails)
    assert str(error.value) == "SomeOp: the kernel for [3] could not be built: nvcc said no"
    assert isinstance(error.value.__cause__, RuntimeError)
    assert identity not in dict(iter_programs())
    program = object()
    assert get(identity, lambda: program) is program
    assert dict(iter_programs())[identity] is program


def test_an_error_of_ours_and_an_interrupt_pass_unchanged() -> None:
    def refuses() -> object:
        raise TargetError("SomeOp: not on this card")

    def interrupted() -> object:
        raise KeyboardInterrupt

    identity = uuid.uuid4().hex
    with pytest.raises(TargetError, match=r"^SomeOp: not on this card$"):
        get(identity, refuses)
    with pytest.raises(KeyboardInterrupt):
        get(identity, interrupted)
    assert get(identity, lambda: 1) == 1
