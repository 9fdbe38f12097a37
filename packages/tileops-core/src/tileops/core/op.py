"""The base class of every op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

from tileops.core import factory, serve, sharing
from tileops.core.boundary import GENERATED, attach, is_generated
from tileops.core.composite import is_composite, parts_keys, sub_ops
from tileops.core.errors import DefinitionError, ParamError
from tileops.core.instances import adopt, describe, not_traced
from tileops.core.kernels import Kernel, KernelInterface
from tileops.core.params import canonical_params, check_target
from tileops.manifest import Entry, ManifestError, load_entry
from tileops.manifest.load import NAMESPACE

if TYPE_CHECKING:
    from typing_extensions import Self

    from tileops.core.warm_up import WarmUpReport

__all__ = ["Op"]

_OpT = TypeVar("_OpT", bound="Op")


class Op:
    """An op: a manifest entry, a constructor, and ``forward``.

    Defining a subclass finds the manifest entry of the class's name and generates the compile
    boundary from it: one operator and one fake for each effect branch, ``_call_boundary``, and
    ``compile_op_names``. The subclass writes nothing for its boundary; its constructor stores
    each param under the param's name and then calls ``super().__init__(target=target)``.

    ``entry=`` gives the entry itself, for an op whose entry is in no installed manifest;
    ``abstract=True`` declares a base class for ops, which has no entry.

    Raises:
        DefinitionError: the class has no entry, an operator's name is taken, a param has the name
            of something that every op has, or the class defines what is generated.
    """

    entry: ClassVar[Entry]
    compile_op_names: ClassVar[tuple[str, ...]] = ()
    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {}

    _identity: ClassVar[str]
    _generated_source: ClassVar[str] = ""
    _argument_names: ClassVar[tuple[tuple[str, ...], ...]] = ((),)

    _device_params: ClassVar[tuple[str, ...]] = ()

    # Generated.
    _infer: ClassVar[Callable[..., tuple[Any, ...]]]

    _key: str
    _description: str
    _params: dict[str, Any]
    _explicit_target: str | None
    _shared_under: str | None
    _part_keys: tuple[str, ...]
    _state: serve.State
    _plans: dict[Any, Any]

    def __init_subclass__(
        cls, *, entry: Entry | None = None, abstract: bool = False, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        if entry is None:
            try:
                # An entry of somebody's package that has one of our names must not take ours down.
                ours = cls.__module__.partition(".")[0] == NAMESPACE
                entry = load_entry(cls.__name__, namespace=NAMESPACE if ours else None)
            except ManifestError as error:
                raise DefinitionError(
                    f"{cls.__module__}.{cls.__qualname__} is an op and needs a manifest entry of "
                    f"its name: {error}"
                ) from error
        _check_names(cls, entry)
        attach(cls, entry)

    def __init__(self, *, target: str | None = None) -> None:
        cls = type(self)
        check_target(cls.__name__, target)
        if not hasattr(cls, "entry"):
            raise DefinitionError(
                f"{cls.__name__} is a base class of ops and has no entry; build an op below it"
            )
        given: dict[str, Any] = {}
        for param in cls.entry.signature.params:
            if not hasattr(self, param.name):
                raise DefinitionError(
                    f"{cls.__name__}: the constructor must store the param {param.name!r} as "
                    f"self.{param.name} before it calls super().__init__"
                )
            given[param.name] = getattr(self, param.name)
        self._params = canonical_params(cls.entry, given)
        for name, value in self._params.items():
            object.__setattr__(self, name, value)
        self._explicit_target = target
        self._shared_under = None
        self._part_keys = ()
        self._state = serve.State()
        self._plans = {}
        self._description = describe(cls._identity, self._params)
        self._key = adopt(self, self._description)

    @classmethod
    def shared(cls, *args: Any, target: str | None = None, **kwargs: Any) -> Self:
        """The one live instance of these params and this target; made now if there is none.

        The way to hold an op in a layer: all layers that ask for the same op get the same
        instance, and with it one key, so that they compile to one graph. It lives as long as
        somebody holds it, and from the first compiled call on as long as the process does. Ask
        when the layer is built, not inside compiled code.

        Without a target, those who ask while another default is set (by ``using_target``,
        ``set_default_target`` or ``TILEOPS_TARGET``) get another instance: one that has served a
        call keeps the target of its first.

        Takes what the constructor takes, and raises what the constructor raises.
        """
        return sharing.shared(cls, args, kwargs, target)

    def __copy__(self) -> Self:
        return sharing.copy(self, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return sharing.copy(self, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return sharing.reduce(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        sharing.restore(self, state)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_params", ()):
            raise ParamError(
                f"{type(self).__name__}: {name} is fixed when the op is built, because compiled "
                f"code relies on it; build another instance with {name}={value!r}"
            )
        if self._holds_sub_op(name):
            raise ParamError(
                f"{type(self).__name__}: {name} is fixed when the op is built, because equal ops "
                f"share what is in it; write a composite of your own with another"
            )
        object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The generated one, where the entry has a boundary, spells out forward's parameters and
        # runs the body at once where nothing watches the call.
        return self._call_boundary(*args, **kwargs)

    def _call_boundary(self, *args: Any, **kwargs: Any) -> Any:
        # Replaced by the generated one where the entry has a boundary.
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The op's computation on checked tensors; each op defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def kernel_for(self, interface: str, call: Any) -> Callable[..., Any]:
        """The kernel of the role ``interface`` for ``call``, built now if it is not there yet.

        Returns a callable that takes the interface's inputs and returns its outputs. For
        ``forward`` only.

        Raises:
            TargetError: the call's target cannot serve it.
            KernelBuildError: the kernel could not be built.
            CaptureError: it would have to be built while a CUDA graph is captured.
        """
        # Dynamo folds the first condition; the second is false of whatever has an operator.
        if torch.compiler.is_dynamo_compiling() and not self.compile_op_names:
            return factory.traced_kernel(self, interface, call)
        return serve.kernel_for(self, interface, call)

    def check_values(self, holds: torch.Tensor, message: Callable[[], str]) -> None:
        """Requires of the call in flight what its tensors' values show: ``holds``, 0-d, is true.

        For ``forward`` of an op whose params ask for such a check, at every call: it waits for the
        device. ``message`` says what is wrong, behind the op's name.

        Raises:
            ArgumentError: ``holds`` is false.
            CaptureError: a CUDA graph is being captured.
        """
        serve.check_values(self, holds, message)

    def output_device(self) -> torch.device | None:
        """Where the call in flight puts its first output, for ``forward`` of an op without inputs.

        None, where dynamo traces, is PyTorch's default device.
        """
        return factory.output_device(self)

    def sub_op(self, cls: type[_OpT], *args: Any, **kwargs: Any) -> _OpT:
        """The shared instance of ``cls`` for these params, served by this op's own target.

        For the constructor of a composite, after ``super().__init__``: composites of one
        specialization share their sub-ops, so that layers that hold one each compile to one graph.
        """
        part = cls.shared(*args, target=self._explicit_target, **kwargs)
        self._part_keys += parts_keys(part)
        # What it is built under is what its sub-ops are shared under.
        self._shared_under = part._shared_under
        return part

    @property
    def _wanted_target(self) -> str | None:
        """The target that it was built with, or the default that it was built under."""
        return self._explicit_target or self._shared_under

    @property
    def serving_target(self) -> str | None:
        """The target that served the latest call, or None before the first.

        Of a composite, those that served its sub-ops, by name: one, where all are of one device.
        """
        if not self.entry.composition:
            return self._state.served_by
        names = {part._state.served_by for part in sub_ops(self)} - {None}
        return ", ".join(sorted(map(str, names))) or None

    def iter_kernels(self) -> Iterator[serve.KernelInUse]:
        """The kernels that this instance has, each with the call spec that it was made for.

        Of a composite, those of its sub-ops.
        """
        for op in (self, *(sub_ops(self) if self.entry.composition else ())):
            yield from serve.kernels_in_use(op)

    def roofline(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """The least flops and bytes of the call ``op(*args, **kwargs)``, which is not run.

        They come from the entry's roofline, which says the algorithm's least work and not what a
        kernel does. Where it reads values (lengths, page tables), they are fetched from the
        device.

        Raises:
            ArgumentError: the call is not a valid one.
        """
        from tileops.core.roofline import roofline

        return roofline(self, args, kwargs)

    def warm_up(
        self, *examples: Any, device: torch.device | str | int | None = None, **named: Any
    ) -> WarmUpReport:
        """Makes the call ``op(*examples, **named)`` once, ahead, and says what that built.

        Afterwards calls of the same shapes and dtypes build nothing, and can be captured in a CUDA
        graph. An example is what the call would be given, or for a tensor its shape and dtype, as
        in ``op.warm_up(x=((8, 4096), torch.float16), device="cuda")``, or a tensor on the meta
        device. In a shape, and for a call-time number, a list stands for one call with each of its
        sizes: ``x=(([1, 2, 4, 8], 4096), torch.float16)``. Several lists go together, the first
        size of one with the first of each other.

        Tensors that are made for it hold zeros, and are on ``device``, or where the first given
        tensor is. Given tensors that the op may write are copied, so theirs are not touched. Calls
        are made one after the other under ``torch.no_grad()``, and the device is synchronized. A
        failed call leaves the instance as it was before.

        Raises:
            ArgumentError: an example is none, or the call is not a valid one.
            CaptureError: a CUDA graph is being captured.
            TargetError: the call's target cannot serve it.
            KernelBuildError: a kernel could not be built.
        """
        from tileops.core.warm_up import warm_up

        return warm_up(self, examples, named, device)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__.get("_params", ()) or self._holds_sub_op(name):
            raise ParamError(
                f"{type(self).__name__}: {name} is fixed when the op is built and cannot be deleted"
            )
        object.__delattr__(self, name)

    def _holds_sub_op(self, name: str) -> bool:
        held = self.__dict__.get(name)
        parts = held if isinstance(held, (list, tuple)) else (held,)
        return any(isinstance(part, Op) for part in parts) and bool(self.entry.composition)

    def __repr__(self) -> str:
        if "_key" not in self.__dict__:
            return f"<{type(self).__name__} that is not built yet>"
        inner = ", ".join(f"{name}={value!r}" for name, value in self._params.items())
        if self._explicit_target is not None:
            inner += f", target={self._explicit_target!r}"
        return f"{type(self).__name__}({inner})"


# Here, and not only where the key is taken: what stands before that may be beyond dynamo already,
# and its complaint of that would not help.
not_traced(Op.__init__)


def _check_names(cls: type[Op], entry: Entry) -> None:
    """Requires that the entry and the class leave the base class its own names.

    Raises:
        DefinitionError: one of them takes such a name.
    """
    for param in entry.signature.params:
        if hasattr(Op, param.name) or param.name in Op.__annotations__:
            raise DefinitionError(
                f"{cls.__module__}.{cls.__qualname__}: the param {param.name!r} would hide what "
                f"every op has under this name; rename it in the entry"
            )
    for name in GENERATED if not entry.composition or is_composite(entry) else ():
        own = cls.__dict__.get(name)
        # A class that a decorator makes a second time brings what was generated for the first.
        if own is not None and not is_generated(own):
            raise DefinitionError(
                f"{cls.__module__}.{cls.__qualname__} defines {name}, which is generated from the "
                f"entry; define forward instead"
            )
