"""What every TileOPs family is made with: the op base class, its boundary, targets and kernels.

Importing this package loads no TileLang and touches no device.
"""

# ruff: noqa: E402
from tileops.core.__about__ import __version__
from tileops.manifest import require_siblings

# Before any entry is read: a sibling of another version would fail there, and not say why.
require_siblings("tileops-core")

from tileops.core.builds import builds_after_warm_up, warm_up_done
from tileops.core.families import load_families
from tileops.core.kernels import CallSpec, Kernel, KernelInterface, fills
from tileops.core.op import Op
from tileops.core.targets import (
    Target,
    default_target,
    register_target,
    set_default_target,
    target_names,
    using_target,
)

__all__ = [
    "CallSpec",
    "Kernel",
    "KernelInterface",
    "Op",
    "Target",
    "__version__",
    "builds_after_warm_up",
    "default_target",
    "fills",
    "load_families",
    "register_target",
    "set_default_target",
    "target_names",
    "using_target",
    "warm_up_done",
]
