"""Every error that TileOPs raises, under one base.

A message names the op, the argument, what the signature requires in the manifest's own words, what
came, and what to do. None of these derives from :class:`TypeError`: one raised while a compiler
traces is wrapped by PyTorch, and a ``TypeError`` would be logged as a fault of the tracer besides.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "BenchError",
    "CaptureError",
    "ContractError",
    "DefinitionError",
    "FamilyError",
    "GradientError",
    "KernelBuildError",
    "KeyLookupError",
    "ParamError",
    "ResultError",
    "TargetError",
    "TileOpsError",
]


class TileOpsError(Exception):
    """The base of every error that TileOPs raises."""


class DefinitionError(TileOpsError):
    """An op class, a kernel or a target is declared in a way that cannot work."""


class FamilyError(TileOpsError, ImportError):
    """An installed family could not be imported."""


class ParamError(TileOpsError, ValueError):
    """A constructor parameter is not what the entry's signature needs."""


class ArgumentError(TileOpsError, ValueError):
    """A call's argument is not what the entry's signature needs."""


class ResultError(TileOpsError, RuntimeError):
    """What served the call gave back a result that the entry's signature does not allow."""


class TargetError(TileOpsError, RuntimeError):
    """No target, or not the one asked for, can serve the call."""


class KernelBuildError(TileOpsError, RuntimeError):
    """A kernel could not be built; the instance is as it was, and the call can be tried again."""


class CaptureError(TileOpsError, RuntimeError):
    """A call under CUDA-graph capture would have had to build something."""


class ValuesReadError(CaptureError):
    """A call that checks its tensors' values was made under CUDA-graph capture, which reads none.

    Being warm does not mend it: the op has to be built without the check.
    """


class GradientError(TileOpsError, RuntimeError):
    """A gradient was asked of an op that serves inference only."""


class KeyLookupError(TileOpsError, LookupError):
    """An operator was called with a key that describes no instance this process can make."""


class ContractError(TileOpsError, AssertionError):
    """A check of the contracts does not hold; the message begins with the check's name."""


class BenchError(TileOpsError, RuntimeError):
    """A benchmark cannot be made as it was asked for."""
