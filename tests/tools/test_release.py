"""What stands in the way of a release is said before anything is published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheels")

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tools import changes, ranges, release
from tools.workspace import Distribution, distributions

Commit = Callable[..., str]


def prepare(repository: Path, family: str, version: str) -> Distribution:
    """Bring a distribution to where it can be tagged."""
    one = distributions(repository)[family]
    (one.package / "__about__.py").write_text(f'__version__ = "{version}"\n')
    for fragment in changes.unreleased(one):
        fragment.unlink()
    one.changelog.write_text(f"# Changes\n\n## {version} (2031-05-06)\n\n- Something.\n")
    return one


def test_a_release_that_is_prepared_has_no_faults(repository: Path, commit: Commit) -> None:
    for family in ("manifest", "core", "norm"):
        prepare(repository, family, "0.1.7")
        commit(f"{family}-v0.1.7")
        assert release.faults(f"{family}-v0.1.7", repository) == []


def test_all_that_is_missing_is_said_at_once(repository: Path, commit: Commit) -> None:
    prepare(repository, "norm", "0.1.7")
    (repository / "packages/tileops-norm/changes/+late.fixed.md").write_text("Late.\n")
    commit()
    needed = [
        f"tileops-norm requires {requirement}, and no such version has a tag; release "
        f"{requirement.name.removeprefix('tileops-')} first"
        for requirement in distributions(repository)["norm"].siblings
    ]
    assert release.faults("norm-v0.1.8", repository) == [
        "the tag is norm-v0.1.8, and the code of tileops-norm says 0.1.7",
        "packages/tileops-norm/changes/+late.fixed.md is in no changelog yet",
        *needed,
    ]
    (repository / "packages/tileops-norm/CHANGELOG.md").write_text("# Changes\n")
    assert (
        "packages/tileops-norm/CHANGELOG.md does not begin with 0.1.7; run: hatch run "
        "upkeep:changes build norm"
    ) in release.faults("norm-v0.1.7", repository)


@pytest.mark.parametrize(
    "tag", ["v0.1.0", "norm-0.1.0", "norm-v0.1", "nrom-v0.1.0", "norm-v1.2.3rc1"]
)
def test_a_tag_names_a_family_and_a_version(repository: Path, tag: str) -> None:
    families = ", ".join(distributions(repository))
    assert release.faults(tag, repository) == [
        f"the tag {tag!r} is no FAMILY-vMAJOR.MINOR.PATCH, FAMILY one of {families}"
    ]


def test_a_sibling_that_was_released_out_of_range_does_not_do(
    repository: Path, commit: Commit
) -> None:
    prepare(repository, "core", "0.1.0")
    commit("core-v9.0.0")
    commit("manifest-v0.1.0")
    faults = release.faults("core-v0.1.0", repository)
    assert faults == []
    prepare(repository, "norm", "0.1.0")
    [fault] = release.faults("norm-v0.1.0", repository)
    assert fault.startswith("tileops-norm requires tileops-core~=")
    assert fault.endswith(", and no such version has a tag; release core first")


def test_a_manifest_is_compared_with_the_release_before_this_one(
    repository: Path, commit: Commit
) -> None:
    prepare(repository, "manifest", "0.1.0")
    commit("manifest-v0.1.0")
    entry = repository / "manifest/src/tileops/manifest/entries/norm/rms_norm_fwd.toml"
    entry.unlink()
    prepare(repository, "manifest", "0.1.1")
    # Beforehand, as the README has it, and in the workflow, where the tag is there.
    for tag in (None, "manifest-v0.1.1"):
        commit(tag)
        [fault] = release.faults("manifest-v0.1.1", repository)
        assert "need at least 0.2.0" in fault
        assert "RMSNormFwdOp: breaking: is gone" in fault


def test_a_manifest_that_cannot_be_read_is_not_released(
    repository: Path, commit: Commit, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(repository, "manifest", "0.1.0")
    commit("manifest-v0.1.0")
    entry = repository / "manifest/src/tileops/manifest/entries/norm/rms_norm_fwd.toml"
    entry.write_text('name = "')
    prepare(repository, "manifest", "0.1.1")
    commit()
    assert release.main(["check", "manifest-v0.1.1"], repository) == 1
    said = capsys.readouterr().err
    assert said.startswith("release: ")
    assert "rms_norm_fwd.toml" in said


def test_a_version_is_released_once(repository: Path, commit: Commit) -> None:
    prepare(repository, "manifest", "0.1.7")
    first = commit("manifest-v0.1.7")
    assert release.faults("manifest-v0.1.7", repository) == []
    commit()
    assert release.faults("manifest-v0.1.7", repository) == [
        f"the tag manifest-v0.1.7 is there already, at {first[:12]}, and this checkout is another "
        "commit; move the version on with: hatch run upkeep:release bump manifest NEW"
    ]


def test_a_bump_takes_along_the_ranges_that_it_leaves(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before this the set of distributions could not be installed any more."""
    one = prepare(repository, "norm", "0.1.0")
    assert release.main(["bump", "norm", "0.1.4"], repository) == 0
    about = "packages/tileops-norm/src/tileops/norm/__about__.py"
    assert capsys.readouterr().out.splitlines() == [f"release: {about}"]
    assert one.version == "0.1.4"
    assert release.main(["bump", "norm", "0.2.0"], repository) == 0
    composite = "packages/tileops-composite/pyproject.toml"
    assert capsys.readouterr().out.splitlines() == [f"release: {about}", f"release: {composite}"]
    assert '"tileops-norm~=0.2.0",' in (repository / composite).read_text("utf-8")
    assert ranges.sibling_faults(repository) == []
    for version, message in (("0.2.0", "tileops-norm is at 0.2.0; 0.2.0 is not above"), ("1", "")):
        assert release.main(["bump", "norm", version], repository) == 1
        assert (message or "'1' is no MAJOR.MINOR.PATCH") in capsys.readouterr().err


def test_a_range_that_cannot_be_moved_is_named(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(repository, "norm", "0.1.0")
    settings = repository / "packages/tileops-composite/pyproject.toml"
    text = settings.read_text("utf-8")
    settings.write_text(text.replace('"tileops-norm~=', '"tileops-norm ~='), "utf-8")
    assert release.main(["bump", "norm", "0.2.0"], repository) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"release: {settings} spells tileops-norm~=")
    assert said.endswith(' in another way; write there "tileops-norm~=0.2.0"\n')
    # Nothing has moved, so that the same command can be given again.
    assert distributions(repository)["norm"].version == "0.1.0"


def test_only_the_files_of_the_tagged_distribution_are_collected(repository: Path) -> None:
    for family in ("norm", "attention"):
        folder = str(distributions(repository)[family].folder)
        list(SdistBuilder(folder).build(directory=str(repository / "dist")))
        builder = WheelBuilder(folder)
        list(builder.build(directory=str(repository / "dist"), versions=["standard"]))
    norm = distributions(repository)["norm"]
    stem = f"tileops_norm-{norm.version}"
    (repository / "dist" / "release").mkdir()
    (repository / "dist" / "release" / "left-over.whl").touch()
    found = release.collect(norm, repository)
    assert [path.name for path in found] == [f"{stem}.tar.gz", f"{stem}-py3-none-any.whl"]
    assert sorted((repository / "dist" / "release").iterdir()) == sorted(found)
    found[0].with_name(found[1].name).unlink()
    (repository / "dist" / found[0].name).unlink()
    with pytest.raises(SystemExit, match=rf"release: dist/ lacks {stem}.tar.gz; run: hatch run"):
        release.collect(norm, repository)


def test_the_command_tells_the_workflow_the_family(
    repository: Path,
    commit: Commit,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = prepare(repository, "manifest", "0.1.7")
    commit("manifest-v0.1.7")
    output = repository.parent / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    assert release.main(["check", "manifest-v0.1.7"], repository) == 0
    assert output.read_text() == "family=manifest\n"
    assert capsys.readouterr().out == f"release: {one.name} 0.1.7 can be published\n"
    assert release.main(["check", "manifest-v0.1.6"], repository) == 1
    assert "release: the tag is manifest-v0.1.6, and" in capsys.readouterr().err
