"""Who is checked: which ops and cases, and which targets serve each of them where."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points

import torch

from tileops.core.choice import Choice, chosen
from tileops.core.conformance import classes
from tileops.core.contract.registry import CompileCase, cases
from tileops.core.contract.subject import Subject
from tileops.core.errors import TargetError
from tileops.core.op import Op
from tileops.core.targets import resolve, target_names

__all__ = [
    "Served",
    "devices_here",
    "known_choice",
    "known_device",
    "known_seed",
    "known_targets",
    "ops_of",
    "served_on",
    "subjects_of",
]


@dataclasses.dataclass(frozen=True)
class Served:
    """One target beside one case on one device: what it says to a plain eager call.

    Attributes:
        target: its name.
        default: whether it is who a call without ``target=`` is served by.
        problem: why it does not serve the case, "" if it does.
    """

    target: str
    default: bool
    problem: str


def devices_here() -> list[str]:
    """The CPU, and the first card where there is one."""
    return ["cpu", *(["cuda:0"] if torch.cuda.is_available() else [])]


def known_targets(names: Sequence[str]) -> None:
    """Requires that there are targets of these names.

    Raises:
        ValueError: one is not there.
    """
    known = target_names()
    for name in names:
        if name not in known:
            raise ValueError(f"there is no target {name!r}; there are: {', '.join(known)}")


def known_device(name: str) -> str:
    """The device's name, with a number where it may have one.

    Raises:
        ValueError: there is none of this name here.
    """
    try:
        device = torch.empty(0, device=torch.device(name)).device
        if device.type == "meta":
            raise RuntimeError("meta tensors have no values to check")
        return str(device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"there is no device {name!r} here: {reason}") from error


def known_seed(seed: int) -> int:
    """The seed, where PyTorch and a report can hold it.

    Raises:
        ValueError: they cannot.
    """
    if not 0 <= seed < 2**63:
        raise ValueError(f"{seed} is no seed; it is a number from 0 to {2**63 - 1}")
    return seed


def known_choice(choice: Choice, problems: Mapping[str, str]) -> list[type[Op]]:
    """:func:`ops_of` the choice, after everything was loaded that could be.

    Args:
        choice: what is asked for.
        problems: what could not be loaded, with its reason.

    Raises:
        ValueError: the choice names what is not there; the message has the problems.
    """
    try:
        installed = {point.name for point in entry_points(group="tileops.families")}
        _known_families(choice.families, installed, {cls.entry.family for cls in classes()})
        if not classes():
            raise ValueError("no family with ops is installed; install one, such as tileops-norm")
        return ops_of(choice)
    except ValueError as error:
        told = [f"cannot be loaded: {what}: {reason}" for what, reason in problems.items()]
        raise ValueError("\n".join([str(error), *told])) from error


def _known_families(named: Sequence[str], installed: set[str], with_ops: set[str]) -> None:
    for name in named:
        if name in installed and name not in with_ops:
            raise ValueError(f"the family {name!r} is installed, and no op of it is there")
        if name not in installed | with_ops:
            listing = ", ".join(sorted(installed | with_ops)) or "none"
            raise ValueError(f"there is no family {name!r}; there are: {listing}")


def ops_of(choice: Choice) -> list[type[Op]]:
    """The chosen ops of installed families, and others that have cases or are named.

    Raises:
        ValueError: the choice names what is not there.
    """
    families = {point.value for point in entry_points(group="tileops.families")}
    with_cases = {case.op for case in cases()}

    def counts(cls: type[Op]) -> bool:
        installed = any(cls.__module__ == f or cls.__module__.startswith(f"{f}.") for f in families)
        return installed or cls in with_cases or cls.entry.name in choice.ops

    return [cls for cls in chosen(choice) if counts(cls)]


def served_on(case: CompileCase, device: torch.device, asked: Sequence[str]) -> list[Served]:
    """What each target says of the case, the default's first; of ``asked``, where it is not empty.

    A target that cannot serve raises :class:`~tileops.core.errors.TargetError`; whatever else a
    call raises is for the checks.
    """
    default = resolve(case.op.__name__, None, device).name
    names = [default, *(name for name in target_names() if name != default)]
    found = []
    for name in [one for one in names if not asked or one in asked]:
        problem = ""
        target = name if asked or name != default else None
        try:
            subject = Subject(case, device, target=target)
            subject.call(subject.make(), subject.inputs())
        except TargetError as error:
            problem = str(error)
        except Exception:
            pass  # the check `served` says so
        found.append(Served(name, name == default, problem))
    return found


def subjects_of(
    case: CompileCase,
    device: torch.device,
    served: Sequence[Served],
    asked: Sequence[str],
    seed: int,
) -> Iterator[Subject]:
    """A subject for each target that serves the case; the default's even where it does not.

    Who calls the op without ``target=`` gets an error there, and ``served`` says so. The first is
    the one that checks of the op are made with.
    """
    serving = [one for one in served if not one.problem or (one.default and not asked)]
    for number, one in enumerate(serving):
        plain = one.default and not asked
        yield Subject(
            case,
            device,
            target=None if plain else one.target,
            served_by=one.target,
            others=tuple(o.target for o in served if not o.problem and o is not one),
            leads=number == 0,
            seed=seed,
        )
