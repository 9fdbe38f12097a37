"""After warm-up_done a build or a store load is logged and counted; a new plan is neither."""

from __future__ import annotations

import logging
import os
import re
import threading
from types import ModuleType, SimpleNamespace

import pytest
import torch

from tileops.core import builds_after_warm_up, store, warm_up_done
from tileops.core.errors import KernelBuildError


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        re.sub(r"\d+\.\d+", "S", record.getMessage())
        for record in caplog.records
        if (record.name, record.levelno) == ("tileops", logging.WARNING)
    ]


def test_a_build_and_a_load_after_warm_up_are_alarms(
    ops: ModuleType, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stalled a request; who reads the log learns which op, for what, and for how long."""
    op = ops.AddFwdOp(target="building")
    op(torch.zeros(2, 4))
    assert (builds_after_warm_up(), warnings_of(caplog)) == (0, [])
    warm_up_done()
    op(torch.zeros(2, 8))
    monkeypatch.setattr(
        store, "open_store", lambda: SimpleNamespace(get=lambda key, report: torch.add)
    )
    op(torch.zeros(2, 16))
    assert builds_after_warm_up() == 2
    assert warnings_of(caplog) == [
        "AddFwdOp: a kernel was built in S s after warm-up, for n = 8; warm it up before serving, "
        "with op.warm_up(...)",
        "AddFwdOp: a kernel was loaded from the store in S s after warm-up, for n = 16; warm it up "
        "before serving, with op.warm_up(...)",
    ]


def test_a_plan_for_a_new_number_of_rows_is_no_alarm(
    ops: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    """Sizes are dynamic in a kernel: a growing batch must not page anybody. Nor does another
    instance of the op, which finds the program."""
    op = ops.AddFwdOp(target="building")
    op.warm_up(((1, 4), torch.float32), device="cpu")
    warm_up_done()
    for rows in range(2, 50):
        op(torch.zeros(rows, 4))
    ops.AddFwdOp(target="building")(torch.zeros(2, 4))
    assert len(op._plans) == 49
    assert (builds_after_warm_up(), warnings_of(caplog)) == (0, [])


def test_it_can_be_taken_back_and_the_counter_stays(
    ops: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    """A monitor that reads the counter must never see it fall."""
    op = ops.AddFwdOp(target="building")
    warm_up_done()
    op(torch.zeros(2, 4))
    warm_up_done(False)
    op(torch.zeros(2, 8))
    assert builds_after_warm_up() == 1
    warm_up_done()
    op(torch.zeros(2, 16))
    assert builds_after_warm_up() == 2
    assert len(warnings_of(caplog)) == 2


def test_a_warm_up_that_was_asked_for_is_no_alarm(
    ops: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    op = ops.AddFwdOp(target="building")
    warm_up_done()
    assert op.warm_up(((2, 4), torch.float32), device="cpu").built == 1
    assert (builds_after_warm_up(), warnings_of(caplog)) == (0, [])


def test_a_failed_build_is_counted_when_it_is_built(ops: ModuleType) -> None:
    """The failed call says so itself, by its error."""
    op = ops.AddFwdOp(target="building")
    warm_up_done()
    ops.fault.build = ValueError("no")
    with pytest.raises(KernelBuildError):
        op(torch.zeros(2, 4))
    assert builds_after_warm_up() == 0
    ops.fault.build = None
    op(torch.zeros(2, 4))
    assert builds_after_warm_up() == 1


def test_eight_threads_that_build_are_counted_once_each(
    ops: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    """And eight that wait for one build are one alarm."""
    op = ops.AddFwdOp(target="building")
    warm_up_done()
    barrier = threading.Barrier(8)

    def call(width: int) -> None:
        barrier.wait()
        op(torch.zeros(2, width))
        op(torch.zeros(2, 64))

    threads = [threading.Thread(target=call, args=(8 * n,)) for n in range(9, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert builds_after_warm_up() == 9
    assert len(warnings_of(caplog)) == 9


def test_a_warm_up_in_another_thread_hides_no_alarm(ops: ModuleType) -> None:
    """What one thread collects for its report is its own."""
    op = ops.AddFwdOp(target="building")
    warm_up_done()
    entered, leave = threading.Event(), threading.Event()

    def wait(call: object) -> object:
        entered.set()
        leave.wait(10)
        return torch.add

    def warm() -> None:
        other = ops.AddFwdOp(target="building")
        other.warm_up(((2, 4), torch.float32), device="cpu")

    ops.fault.launch = None
    original = ops.AddKernel.__call__

    def slow(self: object, *tensors: object) -> None:
        if threading.current_thread() is thread:
            wait(None)
        original(self, *tensors)

    ops.AddKernel.__call__ = slow
    try:
        thread = threading.Thread(target=warm)
        thread.start()
        assert entered.wait(10)
        op(torch.zeros(2, 8))
        assert builds_after_warm_up() == 1
        leave.set()
        thread.join()
        assert builds_after_warm_up() == 1
    finally:
        ops.AddKernel.__call__ = original


def test_a_forked_child_is_warm_too(ops: ModuleType) -> None:
    """A server that forks its workers after warm-up says it once."""
    op = ops.AddFwdOp(target="building")
    warm_up_done()
    child = os.fork()
    if child == 0:
        op(torch.zeros(2, 4))
        os._exit(10 + builds_after_warm_up())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    assert builds_after_warm_up() == 0
