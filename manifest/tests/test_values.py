"""What params take, and the canonical form that construction writes back."""

import re
from typing import Any

import pytest

from tileops.manifest.model import Param
from tileops.manifest.values import canonical


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("int", 3, 3),
        ("float", 3, 3.0),
        ("float", 0.5, 0.5),
        ("bool", True, True),
        ("str", "silu", "silu"),
        ("dtype", "bfloat16", "bfloat16"),
        ("device", "cuda:0", "cuda:0"),
        ("shape", 4096, (4096,)),
        ("shape", [2, 3], (2, 3)),
        ("ints", [-1, 0], (-1, 0)),
        ("floats", [1, 0.5], (1.0, 0.5)),
    ],
)
def test_canonical(kind: Any, given: object, value: object) -> None:
    found = canonical(Param("p", kind), given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("param", "given", "message"),
    [
        (Param("p", "int"), True, "p is an int"),
        (Param("p", "int"), 1.0, "p is an int"),
        (Param("p", "int"), None, "p is an int, and never None"),
        (Param("p", "int", optional=True), "1", "p is an int or None"),
        (Param("p", "float"), "1", "p is a float"),
        (Param("p", "bool"), 1, "p is a bool"),
        (Param("p", "dtype"), "half", "p is a dtype by PyTorch's name"),
        (Param("p", "shape"), [2, -3], "p is an int or ints of at least 0"),
        (Param("p", "shape"), -3, "p is an int or ints of at least 0"),
        (Param("p", "ints"), [1.5], "p is ints"),
        (Param("p", "str", choices=("silu", "gelu")), "relu", "p is one of 'silu', 'gelu'"),
    ],
)
def test_refused(param: Param, given: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        canonical(param, given)


def test_none_is_a_value_of_an_optional_param() -> None:
    assert canonical(Param("p", "str", optional=True, choices=("a",)), None) is None
