"""A short sinusoidal table as a TileLang program, where what takes time is what comes before the
first store.

    table[i, j] = sin(i * f[k] + (pi / 2 where column j is a cosine))

table: [S, E] contiguous and on 16 bytes, of float16, bfloat16 or float32, in fewer than 2**31
accesses; S and E are known at the launch. ``tileops.positional.sinusoidal.programs``, whose program
makes tables of any length, says which column is of which frequency. Here

- the grid's first axis goes down the rows and its second one along them, so that nothing is
  divided, and indices have 32 bits;
- frequencies are float64, in turns a position. The lower 32 bits of ``i * f + 1.5 * 2**20`` are the
  angle in 2**-32 of a turn, rounded once: no row waits for the row before;
- frequencies may be made rather than loaded. Pair k has ``unit * ratio**k``, a product of those
  ``ratio**(2**b)`` whose bit b is set in k, which come with the launch;
- blocks may be launched before the kernel before has ended (programmatic dependent launch). Each
  thread that writes waits for its end, and for its writes, before it writes itself.

**Exactness.** The angle is rounded to 2**-33 of a turn, where ``i * f`` is below 2**19 turns; a
relative error of f counts ``i * f`` times. A made f is a product of at most 11 powers, each off by
2**-52, in 10 roundings of 2**-53: by less than 2**-47. (The exponents' own roundings come to 2**-53
times ``log(f)``, which is of weight where f is small.) A loaded one is off by less. As
``choose_short_config`` keeps ``i * f`` to 2**14 turns, an angle is exact to 2**-32 of a turn, as it
is in the other program.

Launched with ``(table, frequencies, seq_len, accesses, groups, across)``: two addresses, S, the
accesses of a row (of a half of one, where the halves are apart), the blocks that the rows take, and
those that a row takes, all as int32. Where frequencies are made, with ``(table, seq_len, accesses,
groups, across, unit, after, r0, ..., r10)``: see ``short.frequencies`` for these numbers, and
``tileops.core.tilelang_backend`` for that convention.
"""

from typing import Any

from tileops.positional.sinusoidal.configs import NUMBER_BITS, ShortConfig
from tileops.positional.sinusoidal.pieces import sine_and_cosine

__all__ = ["PASS_CONFIGS", "short_sinusoidal"]

#: Every access is guarded here; TileLang's guards in 64 bits would come on top.
PASS_CONFIGS = {"tl.disable_safe_memory_legalize": True}

#: With this added, a float64 in (-2**19, 2**19) has 2**-32 as its last bit.
_LAST_BIT = 1.5 * 2.0**20


def short_sinusoidal(dtype: str, interleaved: bool, config: ShortConfig) -> Any:
    """The ``PrimFunc`` for short tables of ``dtype``."""
    import tilelang.language as T

    threads, vector, rows, made = config.threads, config.vector, config.rows, config.made
    pairs = vector // 2 if interleaved else vector
    halves = 1 if interleaved else 2
    values = sine_and_cosine(precise=dtype == "float32")
    held = config.overlap == "values"

    # The bits of a pair's number that tell a thread's own pairs apart.
    own = pairs.bit_length() - 1

    def power(unit: Any, after: Any, ratios: Any, number: Any) -> Any:
        """unit * ratio**number, in as few steps as there are; after is unit * ratio."""
        choices = [(after, unit), *((ratios[b], T.float64(1.0)) for b in range(1, NUMBER_BITS))]
        factors = [
            T.Select(T.bitwise_and(number, 1 << b) != 0, *choice)
            for b, choice in enumerate(choices)
        ]
        while len(factors) > 1:
            factors = [a * b for a, b in zip(factors[::2], factors[1::2], strict=True)]
        return factors[0]

    @T.macro
    def make_row(out, position, frequency):
        """out = one access of the row, or one of each of its halves."""
        value = T.alloc_local((2 * pairs,), "float32")
        i = T.alloc_local((1,), "float64")
        i[0] = T.cast(position, "float64")
        for p in T.unroll(pairs):
            bits = T.reinterpret(i[0] * frequency[p] + T.float64(_LAST_BIT), "uint64")
            angle = T.cast(T.bitwise_and(bits, T.uint64(2**32 - 1)), "uint32")
            if interleaved:
                values(value, 2 * p, 2 * p + 1, angle)
            else:
                values(value, p, pairs + p, angle)
        for v in T.vectorized(2 * pairs):
            out[v] = T.cast(value[v], dtype)

    @T.macro
    def store_row(Y, row, mine, out, accesses):
        # What runs on is stored whole; a store whose index is a sum may become four.
        at = T.alloc_local((1,), "int32")
        at[0] = row * (accesses * halves) + mine
        for v in T.vectorized(vector):
            Y[at[0], v] = out[v]
        if not interleaved:
            at[0] += accesses
            for v in T.vectorized(vector):
                Y[at[0], v] = out[vector + v]

    @T.macro
    def make_rows(table, frequency, mine, seq_len, accesses, group):
        Y = T.make_tensor_from_addr(table, (seq_len * accesses * halves, vector), dtype)
        first = group * rows
        out = T.alloc_local((2 * pairs,), dtype)
        if held:
            # What is in registers only, ptxas makes after the wait.
            kept = T.alloc_shared((rows, halves, threads, vector), dtype)
            thread = T.get_thread_binding()
            for j in T.unroll(rows):
                make_row(out, first + j, frequency)
                for half in T.unroll(halves):
                    for v in T.vectorized(vector):
                        kept[j, half, thread, v] = out[half * vector + v]
            T.pdl_sync()
            if mine < accesses:
                for j in T.unroll(rows):
                    if first + j < seq_len:
                        for half in T.unroll(halves):
                            for v in T.vectorized(vector):
                                out[half * vector + v] = kept[j, half, thread, v]
                        store_row(Y, first + j, mine, out, accesses)
        else:
            if config.overlap != "none":
                T.pdl_sync()
            if mine < accesses:
                if config.unrolled:
                    for j in T.unroll(rows):
                        if first + j < seq_len:
                            make_row(out, first + j, frequency)
                            store_row(Y, first + j, mine, out, accesses)
                else:
                    for j in T.unroll(T.min(rows, seq_len - first), unroll_factor=1):
                        make_row(out, first + j, frequency)
                        store_row(Y, first + j, mine, out, accesses)

    @T.prim_func
    def loaded(
        table: T.int64,
        frequencies: T.int64,
        seq_len: T.int32,
        accesses: T.int32,
        groups: T.int32,
        across: T.int32,
    ):
        with T.Kernel(groups, across, threads=threads) as (group, part):
            if config.overlap != "none":
                T.pdl_trigger()
            F = T.make_tensor_from_addr(frequencies, (accesses, pairs), "float64")
            frequency = T.alloc_local((pairs,), "float64")
            mine = part * threads + T.get_thread_binding()
            if mine < accesses:
                for p in T.vectorized(pairs):
                    frequency[p] = F[mine, p]
            make_rows(table, frequency, mine, seq_len, accesses, group)

    @T.prim_func
    def computed(
        table: T.int64,
        seq_len: T.int32,
        accesses: T.int32,
        groups: T.int32,
        across: T.int32,
        unit: T.float64,
        after: T.float64,
        r0: T.float64,
        r1: T.float64,
        r2: T.float64,
        r3: T.float64,
        r4: T.float64,
        r5: T.float64,
        r6: T.float64,
        r7: T.float64,
        r8: T.float64,
        r9: T.float64,
        r10: T.float64,
    ):
        with T.Kernel(groups, across, threads=threads) as (group, part):
            if config.overlap != "none":
                T.pdl_trigger()
            frequency = T.alloc_local((pairs,), "float64")
            mine = part * threads + T.get_thread_binding()
            ratios = (r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10)
            frequency[0] = power(unit, after, ratios[own:], mine)
            if pairs > 1:
                frequency[1] = frequency[0] * r0
            if pairs > 2:
                frequency[2] = frequency[0] * r1
                frequency[3] = frequency[1] * r1
            if pairs > 4:
                for p in T.unroll(4):
                    frequency[4 + p] = frequency[p] * r2
            make_rows(table, frequency, mine, seq_len, accesses, group)

    return (computed if made else loaded).with_attr("global_symbol", "short_sinusoidal")
