"""Running statistics that many units move together."""

from typing import Any

from tileops.norm.channels.pieces import pieces
from tileops.norm.channels.traits import Traits

__all__ = ["average_running"]


def average_running(
    traits: Traits,
    workspace: Any,
    running_mean: Any,
    running_var: Any,
    units: Any,
    groups: Any,
    momentum: Any,
    cluster: int = 1,
) -> None:
    """A launch that moves each channel's running statistics towards the mean over the samples.

    ``workspace`` holds each unit's mean, then each unit's unbiased variance. Called inside a
    ``PrimFunc``; where that has launches of clusters, so has TileLang 0.1.15 make this one, and
    ``cluster`` says of how many blocks.
    """
    import tilelang.language as T

    piece = pieces(traits, 1, False)

    @T.macro
    def body():
        with T.Kernel(T.ceildiv(groups, 128 * cluster) * cluster, threads=128) as block:
            if cluster > 1:
                T.pdl_sync()  # see clusters.py
            S = T.make_tensor_from_addr(workspace, (2, units), "float32")
            RM = T.make_tensor_from_addr(running_mean, (groups,), traits.running)
            RV = T.make_tensor_from_addr(running_var, (groups,), traits.running)
            total = T.alloc_local((2,), "float32")
            channel = T.cast(block, "int64") * 128 + T.get_thread_binding()
            samples = units // groups
            if channel < groups:
                total[0] = 0.0
                total[1] = 0.0
                for n in T.serial(samples):
                    total[0] += S[0, n * groups + channel]
                    total[1] += S[1, n * groups + channel]
                count = T.cast(samples, "float32")
                piece.track(RM, channel, total[0] / count, momentum)
                piece.track(RV, channel, total[1] / count, momentum)

    body()
