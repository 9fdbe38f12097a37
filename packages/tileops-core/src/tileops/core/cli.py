"""``tileops``: what a user of the installed wheels asks of them."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; 0, or another where what was asked for is not there or is wrong."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A formula's superscript is no reason to end where the terminal knows ASCII alone.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # Its reader, such as `head`, has seen enough; nor is the end of the process to write more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _run(argv: Sequence[str] | None) -> int:
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
    build = commands.add_parser("build", help="fill the kernel store; needs nvcc and no GPU")
    for word, what in (("op", "OP"), ("family", "FAMILY"), ("workload", "LABEL")):
        build.add_argument(
            f"--{word}",
            metavar=what,
            nargs="+",
            action="extend",
            default=[],
            help=f"only these; default: every {word}",
        )
    build.add_argument(
        "--arch",
        metavar="ARCH",
        nargs="+",
        action="extend",
        default=[],
        help="architectures, such as sm_90a; default: those of the GPUs here",
    )
    build.add_argument(
        "--jobs", metavar="N", type=_positive, default=1, help="processes; default 1"
    )
    _bench_arguments(commands.add_parser("bench", help="measure the ops on their workloads"))
    _contract_arguments(
        commands.add_parser("contract", help="check that the ops keep to what compilers rely on")
    )
    cache = commands.add_parser("cache", help="show the kernel store: its folder and its size")
    cache.add_argument("--clear", action="store_true", help="remove every stored kernel")
    arguments = parser.parse_args(argv)
    if arguments.command == "show":
        return _show(arguments.op, generated=arguments.generated)
    if arguments.command == "build":
        return _build(arguments)
    if arguments.command == "bench":
        return _bench(arguments)
    if arguments.command == "contract":
        return _contract(arguments)
    if arguments.command == "cache":
        return _cache(clear=arguments.clear)
    return _ops() if arguments.command == "ops" else _doctor()


def _ops() -> int:
    from tileops.core.conformance import classes

    whole = _loaded()
    found = sorted(classes(), key=lambda cls: (cls.entry.family, cls.__name__))
    for cls in found:
        operators = ", ".join(cls.compile_op_names) or "no boundary"
        print(f"{cls.entry.family:12}  {cls.__name__:32}  {operators}")
    if not found:
        print("tileops: no family with ops is installed", file=sys.stderr)
    return 0 if found and whole else 1


def _loaded() -> bool:
    """Whether every family could be imported; those that cannot keep nothing of the others away."""
    from tileops.core.errors import FamilyError
    from tileops.core.families import load_families

    try:
        load_families()
    except FamilyError as error:
        print(f"tileops: {error}", file=sys.stderr)
        return False
    return True


def _doctor() -> int:
    from tileops.core.doctor import report

    return report()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def _build(arguments: argparse.Namespace) -> int:
    from tileops.core.build_command import Choice, build_all

    choice = Choice(arguments.op, arguments.family, arguments.workload)
    return build_all(choice, arguments.arch, arguments.jobs, lambda line: print(line, flush=True))


def _bench_arguments(bench: argparse.ArgumentParser) -> None:
    for word, what in (("op", "OP"), ("family", "FAMILY"), ("workload", "LABEL")):
        bench.add_argument(
            f"--{word}",
            metavar=what,
            nargs="+",
            action="extend",
            default=[],
            help=f"only these; default: every {word}",
        )
    bench.add_argument(
        "--peer",
        metavar="NAME[=PLACE]",
        nargs="*",
        action="extend",
        help="adapters in tools/peers, or files; PLACE is an interpreter, or the folders where the "
        "peer is installed; default: every adapter",
    )
    bench.add_argument("--device", help="default: the first card, or the CPU")
    bench.add_argument(
        "--measure",
        metavar="MEASURE",
        nargs="+",
        action="extend",
        help="only these; default: all of the device",
    )
    bench.add_argument("--rounds", metavar="N", type=_positive, default=9, help="default 9")
    bench.add_argument(
        "--json",
        metavar="FILE",
        type=Path,
        help="write the report there; an interrupted one is taken up",
    )
    bench.add_argument("--html", metavar="FILE", type=Path, help="write a page with plots there")
    bench.add_argument(
        "--compare", metavar="OLD.json", type=Path, help="say what moved since that report"
    )
    bench.add_argument(
        "--overhead", action="store_true", help="measure what a start and a call cost instead"
    )
    bench.add_argument(
        "--profile",
        choices=("ncu", "torch"),
        help="show what bounds one workload instead, by this profiler",
    )


def _bench(arguments: argparse.Namespace) -> int:
    from tileops.core.bench.command import Options, bench
    from tileops.core.choice import Choice

    return bench(
        Options(
            Choice(arguments.op, arguments.family, arguments.workload),
            device=arguments.device,
            peers=arguments.peer,
            json=arguments.json,
            html=arguments.html,
            old=arguments.compare,
            overhead=arguments.overhead,
            profile=arguments.profile,
            measures=arguments.measure,
            rounds=arguments.rounds,
        )
    )


def _contract_arguments(contract: argparse.ArgumentParser) -> None:
    for word, what in (("op", "OP"), ("family", "FAMILY")):
        contract.add_argument(
            f"--{word}",
            metavar=what,
            nargs="+",
            action="extend",
            default=[],
            help=f"only these; default: every {word}",
        )
    contract.add_argument(
        "--target",
        metavar="TARGET",
        nargs="+",
        action="extend",
        default=[],
        help="only these; default: every target that serves a case",
    )
    contract.add_argument(
        "--device",
        metavar="DEVICE",
        nargs="+",
        action="extend",
        default=[],
        help="default: the CPU, and the first card",
    )
    contract.add_argument(
        "--isolate", action="store_true", help="give each case processes of its own"
    )
    contract.add_argument("--json", metavar="FILE", type=Path, help="write the report there")
    contract.add_argument(
        "--junit", metavar="FILE", type=Path, help="write the report there as JUnit XML"
    )
    contract.add_argument(
        "--compare", metavar="OLD.json", type=Path, help="say what changed since that report"
    )
    contract.add_argument(
        "--seed", metavar="N", type=int, help="of the random inputs; default: a new one"
    )


def _contract(arguments: argparse.Namespace) -> int:
    from tileops.core.choice import Choice
    from tileops.core.contract.command import Options, contract

    return contract(
        Options(
            Choice(arguments.op, arguments.family),
            targets=arguments.target,
            devices=arguments.device,
            isolate=arguments.isolate,
            json=arguments.json,
            junit=arguments.junit,
            old=arguments.compare,
            seed=arguments.seed,
        )
    )


def _cache(*, clear: bool) -> int:
    from tileops.core.store import open_store

    store = open_store()
    if store is None:
        print("the store is off")
        return 0
    entries = store.entries()
    size = sum(entry.stat().st_size for entry in entries)
    print(f"{store.folder}: {len(entries)} kernels, {size / 2**20:.1f} MiB")
    if clear:
        try:
            print(f"removed {store.clear()}")
        except OSError as error:
            print(f"tileops cache: not everything could be removed: {error}", file=sys.stderr)
            return 1
    return 0


def _show(name: str, *, generated: bool) -> int:
    # Here and not above: `tileops --help` should not wait for torch.
    from tileops.core.conformance import classes
    from tileops.manifest.show import render

    _loaded()
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
