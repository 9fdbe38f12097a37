"""Gives an op class its compile boundary: compiles the generated source and registers operators."""

from __future__ import annotations

import hashlib
import json
import linecache
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tileops.core import checks
from tileops.core.autograd import autograd_kernel
from tileops.core.composite import call_composite, is_composite
from tileops.core.errors import TileOpsError
from tileops.core.factory import call_factory, check_entry, is_factory
from tileops.core.generate import (
    BOUNDARY_ABI,
    argument_names,
    generate,
    generate_composite,
    generate_factory,
    operator_signature,
)
from tileops.core.instances import exported, find, find_for_trace, known_class, live
from tileops.core.lazy import resolving_kernel
from tileops.core.locks import ForkSafeLock
from tileops.core.overlap import refuse_inference, refuse_overlap
from tileops.core.params import word
from tileops.core.registration import TAGS, OperatorSpec, register, shortcut
from tileops.core.serve import serve
from tileops.core.watch import PROBES
from tileops.manifest import Entry, contract_document
from tileops.manifest.symbolic import HELPERS

if TYPE_CHECKING:
    from tileops.core.op import Op

__all__ = ["GENERATED", "attach", "digest", "is_generated"]

GENERATED = ("__call__", "_call_boundary", "_infer")
"""The generated methods of every op; each branch of a boundary has more."""


def digest(entry: Entry) -> str:
    """A short hash of all that a compiled artefact relies on in ``entry`` and in this package."""
    document = {
        "abi": BOUNDARY_ABI,
        "contract": contract_document(entry),
        "schemas": [operator_signature(entry, branch) for branch in entry.branches],
        "tags": [str(tag) for tag in TAGS],
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]


def attach(cls: type[Op], entry: Entry) -> None:
    """Makes the boundary of ``cls`` from ``entry``.

    Raises:
        DefinitionError: an operator's name is taken by another schema.
    """
    cls.entry = entry
    cls.compile_op_names = ()
    cls._identity = f"{cls.__name__}@{digest(entry)}"
    if entry.has_boundary:
        _give_boundary(cls, entry)
    elif is_factory(entry):
        check_entry(entry)
        cls._device_params = tuple(str(output.device) for output in entry.signature.outputs)
        _give_open_methods(cls, entry, generate_factory(entry))
    elif is_composite(entry):
        _give_open_methods(cls, entry, generate_composite(entry))
    # Last: a class whose operators are refused must not be found by a key.
    known_class(cls._identity, cls)


def _give_boundary(cls: type[Op], entry: Entry) -> None:
    source = generate(entry)
    namespace = _execute(cls, source, _namespace(entry))
    overloads: list[Any] = []
    specs = [_operator(cls, entry, index, namespace, overloads) for index in _indices(entry)]
    overloads += register(specs)
    for index, overload in enumerate(overloads):
        namespace[f"_op_{index}"] = overload
        namespace[f"_dispatch_{index}"] = shortcut(overload, namespace[f"_operator_{index}"])
    branches = [f"_{role}_{index}" for role in ("fake", "run") for index in _indices(entry)]
    _give_methods(cls, namespace, (*GENERATED, *branches))
    cls._generated_source = source
    cls._argument_names = tuple(argument_names(entry, branch) for branch in entry.branches)
    cls.compile_op_names = entry.compile_op_names


def _give_open_methods(cls: type[Op], entry: Entry, source: str) -> None:
    """Gives ``cls`` the methods of an op that has no operator."""
    cls._generated_source = source
    _give_methods(cls, _execute(cls, source, _namespace(entry)), GENERATED)


def _give_methods(cls: type[Op], namespace: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        method = namespace[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        method.__module__ = cls.__module__
        setattr(cls, name, method)


def is_generated(method: Any) -> bool:
    """Whether ``method`` is one that :func:`attach` gave a class."""
    code = getattr(method, "__code__", None)
    return code is not None and code.co_filename.startswith(_PREFIX)


def _indices(entry: Entry) -> range:
    return range(len(entry.branches))


def _operator(
    cls: type[Op], entry: Entry, index: int, namespace: dict[str, Any], overloads: list[Any]
) -> OperatorSpec:
    branch = entry.branches[index]
    names = argument_names(entry, branch)
    written = {n: name for n, name in enumerate(names) if name in branch.writes}
    lazy = resolving_kernel(cls.__name__, lambda: overloads[index], names, written)
    return OperatorSpec(
        namespace=entry.namespace,
        name=branch.operator,
        signature=operator_signature(entry, branch),
        body=namespace[f"_operator_run_{index}"],
        fake=namespace[f"_operator_fake_{index}"],
        autograd=autograd_kernel(cls.__name__, lambda: overloads[index], written),
        owner=f"{cls.__module__}.{cls.__qualname__}",
        lazy=lazy if written else None,
    )


def _namespace(entry: Entry) -> dict[str, Any]:
    """The globals of the generated source."""
    signature = entry.signature
    concrete = {spec.dtype for spec in signature.inputs}
    concrete |= {spec.dtype for spec in signature.outputs}
    concrete -= set(signature.dtypes)
    concrete -= {param.name for param in signature.params}
    return {
        **HELPERS,
        **PROBES,
        "_OP": entry.name,
        "_Tensor": torch.Tensor,
        "_strided": torch.strided,
        "_empty": torch.empty,
        "_exported": exported,
        "_find": find,
        "_live": live,
        "_find_for_trace": find_for_trace,
        "_serve": serve,
        "_call_factory": call_factory,
        "_call_composite": call_composite,
        "_no_branch": _no_branch,
        "_word": word,
        "_refuse_inference": refuse_inference,
        "_refuse_overlap": refuse_overlap,
        "_inference": torch.is_inference_mode_enabled,
        "_messages": tuple(rule.message for rule in signature.rules),
        "_combinations": tuple(
            {name: _dtype(dtype) for name, dtype in combination.items()}
            for combination in signature.combinations
        ),
        **{f"_{name}": getattr(checks, name) for name in checks.__all__},
        **{
            f"_range_{name}": tuple(map(_dtype, allowed))
            for name, allowed in signature.dtypes.items()
        },
        **{f"_dtype_{name}": _dtype(name) for name in concrete},
    }


def _dtype(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _no_branch(op: Op) -> TileOpsError:
    return TileOpsError(
        f"{type(op).__name__}: no effect branch of the entry covers this call; the entry's "
        f"branches and its conditions disagree, which is a fault of tileops-manifest"
    )


def _execute(cls: type[Op], source: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs the source in a module of its own and returns the module's namespace.

    A module, because dynamo finds a traced function's globals by importing the module that they
    name. Each definition has its own: code compiled from an earlier one goes on seeing that one.
    """
    stem = f"{_STEM}_{cls.__module__.replace('.', '_')}_{cls.__name__}"
    with _modules_lock:
        number = sum(name == stem or name.startswith(f"{stem}__") for name in sys.modules)
        module = types.ModuleType(f"{stem}__{number}" if number else stem)
        sys.modules[module.__name__] = module
    module.__dict__.update(names)
    filename = f"<{module.__name__}>"
    # Entered in linecache, so that a traceback shows the generated lines.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), module.__dict__)
    return module.__dict__


_modules_lock = ForkSafeLock()
_STEM = "tileops_boundary"
_PREFIX = f"<{_STEM}_"
