"""Writes the entries of ops that only tests use, in few words."""

from __future__ import annotations

from pathlib import Path

from tileops.manifest import Entry, load_text


def tensor(table: str, name: str, shape: str, dtype: str = "T", **more: str) -> str:
    lines = [f"[[signature.{table}]]", f'name = "{name}"', f'dtype = "{dtype}"']
    axes = shape.split()
    key = "shapes" if "|" in shape else "shape"
    value = "[" + ", ".join(f'"{axis}"' for axis in axes) + "]"
    if key == "shapes":
        alternatives = [part.split() for part in shape.split("|")]
        value = str(alternatives).replace("'", '"')
    lines.append(f"{key} = {value}")
    lines += [f"{key} = {value}" for key, value in more.items()]
    return "\n".join(lines) + "\n"


def inp(name: str, shape: str, dtype: str = "T", **more: str) -> str:
    return tensor("inputs", name, shape, dtype, **more)


def outp(name: str, shape: str, dtype: str = "T", **more: str) -> str:
    return tensor("outputs", name, shape, dtype, **more)


def param(name: str, kind: str, **more: str) -> str:
    lines = ["[[signature.params]]", f'name = "{name}"', f'type = "{kind}"']
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in more.items())]) + "\n"


def entry(name: str, *parts: str, dims: str = "", dtypes: str = "float32 float64") -> Entry:
    text = "\n".join(
        [
            f'name = "{name}"',
            'family = "effects"\nstatus = "planned"\nsince = "0.1.0"',
            'summary = "For tests."\nformula = "y = f(x)"\nreference = "torch"',
            "[signature.dims]",
            *(f'"{dim}" = "an axis"' for dim in dims.split()),
            "[signature.dtypes]",
            f"T = {dtypes.split()}".replace("'", '"'),
            *parts,
        ]
    )
    return load_text(text, path=Path("for_tests.toml"))
