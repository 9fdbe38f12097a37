"""Programs are built once, and a build that fails leaves nothing behind."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tileops.core import KernelInterface, Op, Target
from tileops.core.errors import KernelBuildError, TargetError, TileOpsError
from tileops.core.kernels import iter_programs, program_for
from tileops.core.serve import CallContext, OutputSpec
from tileops.manifest import load_text

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


@pytest.mark.parametrize("identity", [(object, "x"), (object, 1, 2), (object,), ()])
def test_an_identity_may_be_any_tuple(identity: Any) -> None:
    """One that begins with a class was taken for that of a kernel, and an empty one for neither."""
    own = (*identity, uuid.uuid4().hex) if len(identity) == 2 else identity
    program = object()
    assert get(own, lambda: program) is get(own, object)


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
    assert (
        str(error.value)
        == "SomeOp: the kernel for [3] could not be built: RuntimeError: nvcc said no"
    )
    assert isinstance(error.value.__cause__, RuntimeError)
    assert identity not in dict(iter_programs())
    program = object()
    assert get(identity, lambda: program) is program
    assert dict(iter_programs())[identity] is program


def test_a_failed_build_says_what_failed_where_its_error_has_no_text() -> None:
    def fails() -> object:
        raise AssertionError

    with pytest.raises(KernelBuildError) as error:
        get(uuid.uuid4().hex, fails)
    assert str(error.value) == "SomeOp: the kernel for [3] could not be built: AssertionError"


def test_a_build_that_gives_nothing_has_failed() -> None:
    """None would be built again by every call, and be launched by each."""
    identity = uuid.uuid4().hex
    with pytest.raises(KernelBuildError) as error:
        get(identity, lambda: None)
    assert str(error.value) == (
        "SomeOp: the kernel for [3] could not be built: the build returned None, and no program"
    )
    assert identity not in dict(iter_programs())
    assert get(identity, lambda: 1) == 1


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


ENTRY = """
name = "CopyFwdOp"
family = "test"
status = "planned"
since = "0.1.0"
summary = "Copies."
formula = "y = x"
reference = "torch.clone"

[signature.dims]
"*B" = "all axes"

[signature.dtypes]
T = ["float32"]

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B"]

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B"]
"""


class CopyInterface(KernelInterface):
    inputs = ("x",)
    outputs = ("y",)


class CopyFwdOp(Op, entry=load_text(ENTRY, path=Path("copy_fwd.toml"))):
    interfaces: ClassVar[Any] = {"copy": CopyInterface}

    def forward(self, x: torch.Tensor) -> Any:
        return self.kernel_for("copy", x.device)(x)


def test_a_call_on_another_device_has_a_kernel_of_its_own() -> None:
    """Two cards, simulated: the call spec names the device, and a kernel is found by it."""
    built: list[torch.device] = []

    def kernel(op: Op, interface: str, call: torch.device) -> Any:
        built.append(call)
        return lambda x: x.clone()

    op = CopyFwdOp()
    target = Target("two-cards", lambda device: False, kernel)
    cards = [torch.device("cuda", 0), torch.device("cuda", 1)]
    spec = {"y": OutputSpec((2,), torch.float32, CPU)}
    with CallContext(op, target, spec, {}):
        first, second = (op.kernel_for("copy", card) for card in cards)
        assert op.kernel_for("copy", cards[0]) is first
    assert built == cards
    assert first is not second


def test_kernel_for_outside_of_a_call_says_what_to_call() -> None:
    with pytest.raises(TileOpsError) as error:
        CopyFwdOp().forward(torch.ones(2))
    assert str(error.value) == (
        "CopyFwdOp: kernel_for serves forward inside a call of the op; call the op itself, not its "
        "forward"
    )
