"""Sine and cosine of an angle that is given in 2**-32 of a turn, as a TileLang macro."""

import math
from typing import Any

__all__ = ["COSINE", "SINE", "sine_and_cosine"]

# For x from -1 to 1, in eighths of a turn: sin = x * (SINE[0] + SINE[1] * x**2 + ...), and
# cos = 1 + x**2 * (COSINE[0] + COSINE[1] * x**2 + ...). Least maximum errors, 1.3e-9 and 6e-11
# before the coefficients were rounded to float32, found by reweighted least squares.
SINE = (0.7853981256484985, -0.08074536919593811, 0.002489872043952346, -3.587725950637832e-05)
COSINE = (-0.3084251284599304, 0.015854327008128166, -0.00032594200456514955, 3.5313346415932756e-6)


def sine_and_cosine(precise: bool) -> Any:
    """The macro ``values(value, s, c, angle)``: value[s], value[c] = sine, cosine, as float32.

    Precise ones are off by at most 1.1e-7, all roundings told; see the test. They share what they
    are reduced to, which CUDA's ``sinpif`` and ``cospif`` do not.

    The others are the hardware's (within half a turn to either side, 2**-21.41 for the sine and
    2**-21.19 for the cosine, by the CUDA programming guide), of one float32. It is off by at most
    3e-7, and by 2e-7 where the cosine is 0: see the test. As many instructions again went into the
    sine of a quarter turn more, which is more exact than the cosine.
    """
    import tilelang.language as T

    def flipped(number: Any, bits: Any) -> Any:
        """The number, negative where the uppermost of the bits is set."""
        sign = T.bitwise_and(bits, T.uint32(1 << 31))
        return T.reinterpret(T.bitwise_xor(T.reinterpret(number, "uint32"), sign), "float32")

    @T.macro
    def polynomials(value, s, c, angle):
        x = T.alloc_local((1,), "float32")
        y = T.alloc_local((1,), "float32")
        p = T.alloc_local((2,), "float32")
        # The distance to the nearest quarter turn: the shift drops the quarters.
        near = T.reinterpret(T.shift_left(angle, T.uint32(2)), "int32")
        x[0] = T.cast(near, "float32") * T.float32(2.0**-31)
        y[0] = x[0] * x[0]
        p[0] = T.float32(SINE[3]) * y[0] + T.float32(SINE[2])
        p[1] = T.float32(COSINE[3]) * y[0] + T.float32(COSINE[2])
        p[0] = p[0] * y[0] + T.float32(SINE[1])
        p[1] = p[1] * y[0] + T.float32(COSINE[1])
        p[0] = (p[0] * y[0] + T.float32(SINE[0])) * x[0]
        p[1] = (p[1] * y[0] + T.float32(COSINE[0])) * y[0] + T.float32(1.0)
        # Which quarter it is nearest to, in the upper two bits: odd ones swap the two, and the sine
        # is negative from the second on, the cosine from the first to the third.
        quarter = angle + T.uint32(1 << 29)
        odd = T.bitwise_and(quarter, T.uint32(1 << 30)) != T.uint32(0)
        value[s] = flipped(T.if_then_else(odd, p[1], p[0]), quarter)
        value[c] = flipped(T.if_then_else(odd, p[0], p[1]), quarter + T.uint32(1 << 30))

    @T.macro
    def fast(value, s, c, angle):
        x = T.alloc_local((1,), "float32")
        x[0] = T.cast(T.reinterpret(angle, "int32"), "float32") * T.float32(math.pi * 2.0**-31)
        value[s] = T.call_extern("float32", "__sinf", x[0])
        value[c] = T.call_extern("float32", "__cosf", x[0])

    return polynomials if precise else fast
