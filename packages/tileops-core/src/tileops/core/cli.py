"""``tileops``: what a user of the installed wheels asks of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns 0, or 1 where what was asked for is not there or is wrong."""
    parser = argparse.ArgumentParser(prog="tileops", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="describe an op that is installed")
    show.add_argument("op", metavar="OP", help="the op's class, such as RMSNormFwdOp")
    show.add_argument(
        "--generated",
        action="store_true",
        help="print the source of its compile boundary, generated from its manifest entry",
    )
    commands.add_parser("ops", help="list the installed ops")
    commands.add_parser("doctor", help="say what is installed and what is in the way")
    arguments = parser.parse_args(argv)
    if arguments.command == "show":
        return _show(arguments.op, generated=arguments.generated)
    return _ops() if arguments.command == "ops" else _doctor()


def _ops() -> int:
    from tileops.core.conformance import classes
    from tileops.core.families import load_families

    load_families()
    found = sorted(classes(), key=lambda cls: (cls.entry.family, cls.__name__))
    for cls in found:
        operators = ", ".join(cls.compile_op_names) or "no boundary"
        print(f"{cls.entry.family:12}  {cls.__name__:32}  {operators}")
    if not found:
        print("tileops: no family with ops is installed", file=sys.stderr)
    return 0 if found else 1


def _doctor() -> int:
    from tileops.core.doctor import report

    return report()


def _show(name: str, *, generated: bool) -> int:
    # Here and not above: `tileops --help` should not wait for torch.
    from tileops.core.conformance import classes
    from tileops.core.families import load_families
    from tileops.manifest.show import render

    load_families()
    found = [cls for cls in classes() if cls.__name__ == name]
    if not found:
        known = ", ".join(sorted({cls.__name__ for cls in classes()})) or "none"
        print(
            f"tileops: no installed family has an op named {name!r}; the ops are: {known}",
            file=sys.stderr,
        )
        return 1
    for cls in found:
        if not generated:
            print(render(cls.entry))
        elif cls.compile_op_names:
            print(cls._generated_source, end="")
        else:
            print(f"# {name} has no compile boundary: its entry asks for none")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
