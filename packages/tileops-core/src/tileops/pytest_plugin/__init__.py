"""The contracts as tests of pytest: ``pytest --tileops-contract`` adds a test a case and check.

Beside ``tileops.core`` and not in it: pytest imports every plugin that is installed, in every run,
and must wait for no torch there. Without the option nothing more is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tileops.core.contract.check import Check, Finding
    from tileops.core.contract.suite import Suite, Work

__all__: list[str] = []

OPTION = "--tileops-contract"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tileops", "the contracts of TileOPs ops")
    group.addoption(
        OPTION,
        action="store_true",
        help="add a test for each check of each compile case of the installed families",
    )
    for word, what in (
        ("family", "of these families"),
        ("op", "of these ops"),
        ("target", "by these targets, and not by each that serves a case"),
        ("device", "on these devices, and not on the CPU and the first card"),
    ):
        group.addoption(
            f"{OPTION}-{word}",
            action="append",
            default=[],
            metavar=word.upper(),
            help=f"only {what}; may be given several times",
        )
    group.addoption(
        f"{OPTION}-seed", type=int, metavar="N", help="of the random inputs; default: a new one"
    )


# First: what -k and -m choose is chosen among these tests too.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    if config.getoption(OPTION):
        contracts = Contracts.from_parent(session, name="contract", nodeid="tileops-contract")
        config.stash[CONTRACTS] = contracts
        items.extend(contracts.collect())


def pytest_sessionfinish(session: pytest.Session) -> None:
    contracts = session.config.stash.get(CONTRACTS, None)
    if contracts is not None and contracts.says_nothing and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    contracts = config.stash.get(CONTRACTS, None)
    if contracts is not None and contracts.says_nothing:
        terminalreporter.write_line(
            f"{OPTION}: nothing was checked: all {contracts.asked} checks of cases were skipped, "
            f"and -rs says why"
        )


class Contracts(pytest.Collector):
    """The parent of the tests; holds what they share."""

    suite: Suite
    asked = 0
    """How many checks of cases there were, and how many of them were skipped."""
    skipped = 0

    @property
    def says_nothing(self) -> bool:
        """Whether there were checks of cases, and each was skipped."""
        return 0 < self.asked == self.skipped

    def collect(self) -> Iterator[pytest.Item]:
        import secrets

        from tileops.core.choice import Choice
        from tileops.core.contract.checks import CHECKS
        from tileops.core.contract.installed import load_all
        from tileops.core.contract.plan import (
            devices_here,
            known_choice,
            known_device,
            known_seed,
            known_targets,
        )
        from tileops.core.contract.suite import Suite, work_of

        chosen = {
            word: self.config.getoption(f"{OPTION}-{word}")
            for word in ("family", "op", "target", "device", "seed")
        }
        problems = load_all(chosen["family"])
        try:
            ops = known_choice(Choice(chosen["op"], chosen["family"]), problems)
            known_targets(chosen["target"])
            devices = list(dict.fromkeys(map(known_device, chosen["device"]))) or devices_here()
            seed = secrets.randbits(31) if chosen["seed"] is None else known_seed(chosen["seed"])
        except ValueError as error:
            raise pytest.UsageError(f"{OPTION}: {error}") from error
        work = work_of(ops, devices)
        self.suite = Suite(work, targets=chosen["target"], seed=seed)
        self.config.add_cleanup(self.suite.close)
        for what, reason in problems.items():
            yield Problem.of(self, f"installed::{what}", f"cannot be loaded: {reason}")
        for cls in ops:
            yield HasCase.of(self, f"{cls.__name__}::has-case", cls)
        # Those that need fresh processes last: they wait until both have ended.
        for check in sorted(CHECKS, key=lambda check: check.together):
            for one in work:
                yield CaseCheck.of(self, f"{one.case.name}::{one.device}::{check.name}", one, check)


class ContractTest(pytest.Item):
    """A test whose name begins with ``tileops-contract``."""

    @classmethod
    def of(cls, parent: Contracts, name: str, *words: Any) -> ContractTest:
        item = cls.from_parent(parent, name=name, nodeid=f"{parent.nodeid}::{name}")
        item.words = words
        return item

    words: tuple[Any, ...]

    def reportinfo(self) -> tuple[str, None, str]:
        return "tileops-contract", None, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any, **__: Any) -> Any:
        from tileops.core.errors import ContractError

        if isinstance(excinfo.value, ContractError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def judge(self, findings: list[tuple[str, Finding]]) -> None:
        """Passes where one holds and none is broken; skips where none says anything."""
        from tileops.core.contract.suite import require_held

        for name, one in findings:
            line = f"{name}: {one.check}: {one.outcome}: {one.detail}"
            self.user_properties.append(("finding", line))
        reasons = require_held(findings)
        if reasons:
            pytest.skip(reasons)


class Problem(ContractTest):
    """A family, or its contracts, that cannot be loaded."""

    def runtest(self) -> None:
        from tileops.core.errors import ContractError

        raise ContractError(f"{self.name} {self.words[0]}")


class HasCase(ContractTest):
    """Whether an op that must have a compile case has one."""

    def runtest(self) -> None:
        from tileops.core.contract.run import has_case

        (cls,) = self.words
        self.judge([(cls.__name__, has_case(cls))])


class CaseCheck(ContractTest):
    """One check of one case on one device, of each target that serves it there."""

    parent: Contracts

    def runtest(self) -> None:
        work: Work = self.words[0]
        check: Check = self.words[1]
        suite = self.parent.suite
        for one in suite.unserved(work):
            self.add_report_section("call", "targets", f"not served by {one.target}: {one.problem}")
        found = [(subject.name, finding) for subject, finding in suite.findings(work, check)]
        self.parent.asked += 1
        try:
            self.judge(found)
        except pytest.skip.Exception:
            self.parent.skipped += 1
            raise


CONTRACTS = pytest.StashKey[Contracts]()
