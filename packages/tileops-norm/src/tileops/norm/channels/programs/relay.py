"""A unit over many blocks, read twice by one launch: the second time while L2 still holds it."""

from typing import Any

from tileops.norm.channels import tickets
from tileops.norm.channels.layouts import RelayLayout
from tileops.norm.channels.pieces import PRELUDE, pieces
from tileops.norm.channels.programs.running import average_running
from tileops.norm.channels.traits import Traits
from tileops.norm.rows.configs import HINTS, ITEMSIZE
from tileops.norm.rows.programs import device

__all__ = ["PARAMETERS", "relay"]

#: The parameters of the program, in order: those of ``split``, and by how many parts the first
#: visits are ahead of the second ones.
PARAMETERS = (
    *("x", "weight", "bias", "y", "running_mean", "running_var", "counter", "workspace"),
    *("units", "size", "inner", "stride", "pitch", "groups", "per", "magic", "shift"),
    *("parts", "part", "lead", "elements", "eps", "momentum"),
)


def relay(traits: Traits, layout: RelayLayout) -> Any:
    """Units of any size; each block visits one part of one unit, for one of two things.

    A block takes a ticket (see :mod:`tileops.norm.channels.tickets`). On the first visit of a part
    it leaves the part's mean and squares in ``workspace``; the last block of a unit to do so merges
    them, moves the running statistics, and publishes the unit's mean and reciprocal deviation. On
    the second visit a block waits for these, and normalizes the part.

    No block waits in vain. First visits wait for nothing. A second visit's ticket comes behind
    those of all first visits of its unit, since ``lead`` is at least a unit's parts; so these run
    already, or have ended, however few blocks a card runs at once.

    Between the visits of a part ``lead`` parts are read, those of a unit and some to keep the card
    busy, and at most as many are written. Of the largest units that it is chosen for, that is 26 MB
    read on an H200, half of what its L2 holds. First visits ask L2 to keep what they read; second
    visits give it free, and write by accesses that do not ask for a place in it.

    The launch before it clears the counters and the slots, of which a workspace holds anything, and
    counts the batch: so the count is there for all that average by it.
    """
    import tilelang.language as T

    threads, vector, unroll = layout.threads, layout.vector, layout.unroll
    dtype, mode = traits.dtype, traits.mode
    affine_dtype, running = traits.affine or dtype, traits.running
    piece = pieces(traits, vector, False)
    width, warps, chunk = vector * ITEMSIZE[dtype], threads // 32, threads * unroll
    keep, leave, stream = (HINTS.index(hint) for hint in ("last", "first", "streaming"))
    prelude = device.SOURCE + PRELUDE + tickets.SOURCE

    def slots_of(workspace: Any, units: Any, parts: Any) -> Any:
        """A slot for each unit, behind the parts' mean and squares."""
        return T.make_tensor_from_addr(workspace + units * parts * 8, (units,), "int64")

    def counts_of(workspace: Any, units: Any, parts: Any) -> Any:
        """How many parts of each unit are done, and then how many tickets were taken."""
        at = workspace + units * parts * 8 + units * 8
        return T.make_tensor_from_addr(at, (units + 1,), "int32")

    def averages_of(workspace: Any, units: Any, parts: Any) -> Any:
        """The address of what ``average_running`` reads."""
        return workspace + units * parts * 8 + units * 8 + (units + 1) * 4

    @T.macro
    def read(x, hint, held, base, o, end, inner, stride, magic, shift):
        """As the pieces' ``read``, with a hint."""
        for i in T.unroll(unroll):
            if o + i * threads < end:
                at = piece.address(base, o + i * threads, inner, stride, magic, shift)
                T.call_extern(
                    "handle",
                    f"rows::get<{width}, {hint}, false>",
                    T.address_of(held[i, 0]),
                    x + at * width,
                )
            else:
                for v in T.vectorized(vector):
                    held[i, v] = T.cast(0, dtype)

    @T.macro
    def write(y, held, i, at, mean, reciprocal, scale, offset):
        """As the pieces' ``write``, with a hint."""
        out = T.alloc_local((vector,), dtype)
        for v in T.unroll(vector):
            out[v] = T.cast(
                (T.cast(held[i, v], "float32") - mean) * (reciprocal * scale) + offset, dtype
            )
        T.call_extern(
            "handle", f"rows::put<{width}, {stream}>", y + at * width, T.address_of(out[0])
        )

    @T.prim_func
    def relay(
        x: T.int64,
        weight: T.int64,
        bias: T.int64,
        y: T.int64,
        running_mean: T.int64,
        running_var: T.int64,
        counter: T.int64,
        workspace: T.int64,
        units: T.int64,
        size: T.int64,
        inner: T.int32,
        stride: T.int64,
        pitch: T.int64,
        groups: T.int64,
        per: T.int32,
        magic: T.int64,
        shift: T.int32,
        parts: T.int32,
        part: T.int32,
        lead: T.int32,
        elements: T.float32,
        eps: T.float32,
        momentum: T.float32,
    ):
        with T.Kernel(T.ceildiv(units + 1, 256), threads=256, prelude=prelude) as block:
            slots0 = slots_of(workspace, units, parts)
            counts0 = counts_of(workspace, units, parts)
            n = T.cast(block, "int64") * 256 + T.get_thread_binding()
            if n < units:
                slots0[n] = T.cast(-1, "int64")
            if n <= units:
                counts0[n] = 0
            if traits.counted and n == 0:
                C = T.make_tensor_from_addr(counter, (1,), "int64")
                C[0] = C[0] + 1

        with T.Kernel(2 * units * parts, threads=threads):
            S = T.make_tensor_from_addr(workspace, (2, units * parts), "float32")
            slots = slots_of(workspace, units, parts)
            counts = counts_of(workspace, units, parts)
            values = T.alloc_local((unroll, vector), dtype)
            state = T.alloc_local((3,), "float32")
            told = T.alloc_local((2,), "float32")
            scale = T.alloc_local((unroll,), "float32")
            offset = T.alloc_local((unroll,), "float32")
            last = T.alloc_local((1,), "int32")
            partial = T.alloc_shared((3, 1, warps), "float32")
            thread = T.get_thread_binding()
            # Kept in registers of their own: TileLang would write the divisions out at each use.
            kept = T.alloc_local((5,), "int32")
            kept[0] = T.call_extern(
                "int32",
                "tickets::take",
                T.address_of(counts[units]),
                T.cast(units, "int32") * parts,
                lead,
            )
            kept[1] = kept[0] >> 1
            kept[2] = T.cast(T.cast(kept[1], "uint32") // T.cast(parts, "uint32"), "int32")
            kept[3] = (kept[1] - kept[2] * parts) * part
            kept[4] = T.cast(T.min(T.cast(kept[3], "int64") + part, size), "int32")
            unit = T.cast(kept[2], "int64")
            start = kept[3]
            end = kept[4]
            chunks = (end - start + (chunk - 1)) // chunk

            if kept[0] % 2 == 0:
                piece.clear(state)
                for c in T.serial(chunks):
                    o = start + c * chunk + thread
                    read(x, keep, values, unit * pitch, o, end, inner, stride, magic, shift)
                    piece.accumulate(values, unroll, o, threads, end, state, False)
                piece.settle(state, partial, thread, threads, 1, 0, None)
                if thread == 0:
                    S[0, T.cast(kept[1], "int64")] = state[1]
                    S[1, T.cast(kept[1], "int64")] = state[2]
                last[0] = T.call_extern(
                    "int32", "tickets::is_last", T.address_of(counts[unit]), parts
                )
                if last[0] != 0:
                    # Its barrier is behind the reads of ``partial`` too.
                    piece.merge_parts(S, state, partial, thread, threads, unit, parts, part, size)
                    if thread == 0:
                        T.call_extern(
                            "handle",
                            "tickets::publish",
                            T.address_of(slots[unit]),
                            state[1],
                            T.rsqrt(state[2] / elements + eps),
                        )
                        if running:
                            piece.move_running(
                                *(running_mean, running_var, counter),
                                *(averages_of(workspace, units, parts), state),
                                *(unit, units, groups, elements, momentum, 0),
                            )
            else:
                W = T.make_tensor_from_addr(weight, (groups,), affine_dtype)
                B = T.make_tensor_from_addr(bias, (groups,), affine_dtype)
                first = piece.first_channel(unit, groups, per)
                T.call_extern(
                    "handle",
                    "tickets::await",
                    T.address_of(slots[unit]),
                    T.address_of(told[0]),
                    T.address_of(told[1]),
                )
                if mode != "group":
                    piece.affine(W, B, scale, offset, 0, first, 0, inner, magic, shift)
                for c2 in T.serial(chunks):
                    o2 = start + (chunks - 1 - c2) * chunk + thread
                    read(x, leave, values, unit * pitch, o2, end, inner, stride, magic, shift)
                    for i in T.unroll(unroll):
                        p = o2 + i * threads
                        if p < end:
                            at = piece.address(unit * pitch, p, inner, stride, magic, shift)
                            if mode == "group":
                                piece.affine(W, B, scale, offset, i, first, p, inner, magic, shift)
                            j = i if mode == "group" else 0
                            write(y, values, i, at, told[0], told[1], scale[j], offset[j])

        if running and mode == "instance":
            average_running(
                *(traits, averages_of(workspace, units, parts), running_mean, running_var),
                *(units, groups, momentum),
            )

    return relay.with_attr("global_symbol", "relay")
