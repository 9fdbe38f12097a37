"""Who serves a call is chosen by rules that never surprise, and a broken plugin says so."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tileops.core import (
    KernelInterface,
    Op,
    Target,
    default_target,
    plugins,
    register_target,
    set_default_target,
    target_names,
    targets,
    using_target,
)
from tileops.core.errors import DefinitionError, KernelBuildError, TargetError
from tileops.manifest import load_text

ENTRY = """
name = "PlusOneFwdOp"
family = "test"
status = "planned"
since = "0.1.0"
summary = "Adds one."
formula = "y = x + 1"
reference = "torch.add"

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


class PlusOneInterface(KernelInterface):
    inputs = ("x",)
    outputs = ("y",)

    @classmethod
    def reference(cls, call: Any, *inputs: torch.Tensor | None) -> Any:
        (x,) = inputs
        return None if x is None else x + 1


class PlusOneFwdOp(Op, entry=load_text(ENTRY, path=Path("plus_one_fwd.toml"))):
    interfaces: ClassVar[Any] = {"plus_one": PlusOneInterface}

    def forward(self, x: torch.Tensor) -> Any:
        return self.kernel_for("plus_one", x.device)(x.contiguous())


X = torch.zeros(3)


def plus(amount: float) -> Callable[..., Any]:
    """A target's kernel function whose results tell which target it was."""
    return lambda op, interface, call: lambda x: x + amount


def nobody(device: torch.device) -> bool:
    return False


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs entry points, by name and what they load to (an exception is raised)."""
    points: list[Any] = []
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: points)
    monkeypatch.setattr(plugins, "_loaded", False)
    monkeypatch.setattr(plugins, "_failures", [])

    def install(name: str, found: Any) -> None:
        class Point:
            value = f"some_package:{name}"

            def load(self) -> Any:
                if isinstance(found, BaseException):
                    raise found
                return found

        Point.name = name  # type: ignore[attr-defined]
        points.append(Point())

    before = set(target_names())
    monkeypatch.setattr(plugins, "_loaded", False)
    yield install
    for name in set(target_names()) - before:
        targets.unregister_target(name)


@pytest.fixture
def target() -> Iterator[Callable[[Target], Target]]:
    """Registers targets for one test."""
    made: list[str] = []

    def add(one: Target) -> Target:
        register_target(one)
        made.append(one.name)
        return one

    yield add
    set_default_target(None)
    for name in made:
        targets.unregister_target(name)


def served(op: PlusOneFwdOp) -> tuple[float, str | None]:
    return op(X)[0].item(), op.serving_target


def test_the_order_constructor_default_detection_in_tree(target: Any) -> None:
    target(Target("ten", nobody, plus(10)))
    target(Target("twenty", nobody, plus(20)))
    assert served(PlusOneFwdOp()) == (1.0, "reference")
    claiming = target(Target("thirty", lambda device: device.type == "cpu", plus(30)))
    assert served(PlusOneFwdOp()) == (30.0, "thirty")
    set_default_target("twenty")
    assert served(PlusOneFwdOp()) == (20.0, "twenty")
    assert served(PlusOneFwdOp(target="ten")) == (10.0, "ten")
    assert served(PlusOneFwdOp(target="reference")) == (1.0, "reference")
    assert claiming.claims(torch.device("cpu"))


def test_the_block_s_target_goes_before_the_process_s(target: Any) -> None:
    target(Target("ten", nobody, plus(10)))
    target(Target("twenty", nobody, plus(20)))
    set_default_target("twenty")
    with using_target("ten"):
        assert default_target() == "ten"
        with using_target("reference"):
            assert served(PlusOneFwdOp()) == (1.0, "reference")
        assert served(PlusOneFwdOp()) == (10.0, "ten")
        elsewhere: list[Any] = []
        thread = threading.Thread(target=lambda: elsewhere.append(default_target()))
        thread.start()
        thread.join()
        assert elsewhere == ["twenty"]
    assert default_target() == "twenty"
    with pytest.raises(RuntimeError, match="inside"), using_target("ten"):
        raise RuntimeError("inside")
    assert default_target() == "twenty"


def test_the_environment_s_target(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    target(Target("ten", nobody, plus(10)))
    monkeypatch.setenv("TILEOPS_TARGET", "ten")
    assert served(PlusOneFwdOp()) == (10.0, "ten")
    monkeypatch.setenv("TILEOPS_TARGET", "")
    assert served(PlusOneFwdOp()) == (1.0, "reference")
    monkeypatch.setenv("TILEOPS_TARGET", "nowhere")
    op = PlusOneFwdOp()
    with pytest.raises(
        TargetError,
        match=r"^PlusOneFwdOp, by TILEOPS_TARGET: no target is named 'nowhere'; the targets are ",
    ):
        op(X)
    monkeypatch.delenv("TILEOPS_TARGET")
    assert served(op) == (1.0, "reference")


def test_an_instance_keeps_the_target_that_served_it(target: Any) -> None:
    target(Target("ten", nobody, plus(10)))
    op = PlusOneFwdOp()
    assert served(op) == (1.0, "reference")
    with using_target("ten"):
        assert served(op) == (1.0, "reference")


def test_a_default_that_does_not_exist_is_refused_at_once() -> None:
    text = "no target is named 'nowhere'; the targets are 'tilelang', 'reference'"
    with pytest.raises(TargetError) as error:
        set_default_target("nowhere")
    assert str(error.value) == f"the process default: {text}"
    with pytest.raises(TargetError) as error, using_target("nowhere"):
        raise AssertionError("the block must not run")
    assert str(error.value) == f"using_target: {text}"
    assert default_target() is None


def test_two_that_claim_one_device(target: Any) -> None:
    target(Target("ten", lambda device: True, plus(10)))
    target(Target("twenty", lambda device: True, plus(20)))
    op = PlusOneFwdOp()
    with pytest.raises(TargetError) as error:
        op(X)
    assert str(error.value) == (
        "PlusOneFwdOp: the targets 'ten', 'twenty' all claim cpu; choose one with target=... or "
        "set_default_target(...)"
    )
    assert op.serving_target is None
    with using_target("twenty"):
        assert served(op) == (20.0, "twenty")


def test_a_name_is_taken_once(target: Any) -> None:
    target(Target("ten", nobody, plus(10)))
    for name in ("ten", "reference", "tilelang"):
        with pytest.raises(DefinitionError) as error:
            register_target(Target(name, nobody, plus(0)))
        assert str(error.value) == (
            f"a target named {name!r} is registered already; give one of the two another name"
        )
    with pytest.raises(DefinitionError) as error:
        register_target("ten")  # type: ignore[arg-type]
    assert str(error.value) == ("a target must be a tileops.core.Target, and 'ten' is of type str")


def test_plugins_are_found(plugin: Any) -> None:
    plugin("ten", Target("ten", nobody, plus(10)))
    plugin("twenty", lambda: Target("twenty", lambda device: True, plus(20)))
    assert served(PlusOneFwdOp(target="ten")) == (10.0, "ten")
    assert served(PlusOneFwdOp()) == (20.0, "twenty")
    assert plugins.plugin_failures() == ()


def test_a_plugin_that_fails_breaks_nothing_and_explains_what_it_can(
    plugin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plugin("broken", ImportError("no module named cuda_thing"))
    plugin("wrong", 3)
    plugin("taken", Target("reference", nobody, plus(10)))
    plugin("twenty", Target("twenty", nobody, plus(20)))
    assert served(PlusOneFwdOp()) == (1.0, "reference")
    assert served(PlusOneFwdOp(target="twenty")) == (20.0, "twenty")
    reasons = [
        "the target plugin 'broken' (some_package:broken) failed to load: ImportError: no module "
        "named cuda_thing",
        "the target plugin 'wrong' (some_package:wrong) failed to load: DefinitionError: a target "
        "must be a tileops.core.Target, and 3 is of type int",
        "the target plugin 'taken' (some_package:taken) failed to load: DefinitionError: a target "
        "named 'reference' is registered already; give one of the two another name",
    ]
    assert [str(failure) for failure in plugins.plugin_failures()] == reasons
    assert [record.message for record in caplog.records] == reasons
    with pytest.raises(TargetError) as error:
        PlusOneFwdOp(target="broken")(X)
    assert str(error.value) == (
        "PlusOneFwdOp: no target is named 'broken'; the targets are 'twenty', 'tilelang', "
        f"'reference'; {'; '.join(reasons)}"
    )


def test_a_plugin_that_looks_for_targets_while_it_loads(plugin: Any) -> None:
    def make() -> Target:
        assert "reference" in target_names()
        return Target("ten", nobody, plus(10))

    plugin("ten", make)
    assert served(PlusOneFwdOp(target="ten")) == (10.0, "ten")


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("broken", "kind", "text"),
    [
        (
            Target("bad", lambda device: 1 // 0 == 0, plus(0)),
            TargetError,
            "PlusOneFwdOp: the target 'bad' failed when asked whether it claims cpu: "
            "ZeroDivisionError: integer division or modulo by zero; choose a target with "
            "target=... or set_default_target(...)",
        ),
        (
            Target("bad", lambda device: True, lambda op, interface, call: {}["kernel"]),
            KernelBuildError,
            "PlusOneFwdOp: the target 'bad' failed to make a kernel for device(type='cpu'): "
            "KeyError: 'kernel'; nothing is kept of it, and the call can be tried again",
        ),
        (
            Target("bad", lambda device: True, lambda op, interface, call: 7),  # type: ignore[arg-type, return-value]
            TargetError,
            "PlusOneFwdOp: the target 'bad' made 7 for the interface 'plus_one', which cannot be "
            "called; its kernel function must return a callable",
        ),
    ],
    ids=["detector", "builder", "not callable"],
)
def test_a_target_that_fails_leaves_nothing_and_the_next_good_call_works(
    target: Any, broken: Target, kind: type[Exception], text: str, compiled: bool
) -> None:
    target(broken)
    op = PlusOneFwdOp()
    torch._dynamo.reset()
    call = torch.compile(op, backend="aot_eager", fullgraph=True) if compiled else op
    with pytest.raises(kind) as error:
        call(X)
    assert str(error.value) == text
    assert (op.serving_target, op._state.targets, op._state.kernels, op._plans) == (
        None,
        {},
        {},
        {},
    )
    with using_target("reference"):
        torch.testing.assert_close(call(X), X + 1)
    assert op.serving_target == "reference"


def test_an_interrupt_in_the_middle_of_a_first_call_leaves_nothing(target: Any) -> None:
    interrupted = True

    def kernel(op: Op, interface: str, call: Any) -> Any:
        if interrupted:
            raise KeyboardInterrupt
        return lambda x: x + 10

    target(Target("slow", nobody, kernel))
    op = PlusOneFwdOp(target="slow")
    with pytest.raises(KeyboardInterrupt):
        op(X)
    assert (op.serving_target, op._state.kernels, op._plans) == (None, {}, {})
    interrupted = False
    assert served(op) == (10.0, "slow")


def test_an_op_whose_kernel_calls_an_op(target: Any) -> None:
    """Each call keeps its own target and its own outputs; the inner one ends first."""
    inner = PlusOneFwdOp(target="reference")
    target(Target("outer", nobody, lambda op, interface, call: lambda x: inner(x) + 9))
    op = PlusOneFwdOp(target="outer")
    assert served(op) == (10.0, "outer")
    assert inner.serving_target == "reference"
    torch._dynamo.reset()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), X + 10)


def test_a_child_forked_after_use_works_too(target: Any) -> None:
    """Locks that a thread of the parent held would never be given back in the child."""
    program = (
        "import os, sys, threading, torch\n"
        "from tileops.norm import RMSNormFwdOp\n"
        "from tileops.core import boundary, instances, kernels, plugins, registration\n"
        "from tileops.core import sharing, targets\n"
        "x = torch.ones(2, 8); op = RMSNormFwdOp(8); op(x)\n"
        "locks = [m._lock for m in (instances, targets, plugins, registration, sharing)]\n"
        "locks.append(boundary._modules_lock)\n"
        "ready, done = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    for lock in locks: lock.__enter__()\n"
        "    ready.set(); done.wait()\n"
        "thread = threading.Thread(target=hold, daemon=True); thread.start(); ready.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    op(x); RMSNormFwdOp(8)(x); RMSNormFwdOp.shared(8)(x)\n"
        "    from tileops.core import Op\n"
        "    type('RMSNormFwdOp', (Op,), {'forward': RMSNormFwdOp.forward})\n"
        "    kernels.program_for('k', lambda: 1, device=torch.device('cpu'), op='o', shape='s')\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "done.set(); os._exit(0) if sys.stdout.flush() is None else None\n"
    )
    pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TILEOPS_TARGET": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.strip() == "7", result.stderr
