"""Peers answer from processes of their own, and whatever befalls them is told, not raised."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from tileops.core.bench.peers import PeerProcess, find_adapters, parse_peer, parse_peers
from tileops.core.errors import BenchError

HERE = Path(__file__).parent
FAKE = HERE / "fake_peer.py"
CPU = torch.device("cpu")
X = torch.arange(6.0).reshape(2, 3)


def prepared(peer: PeerProcess, op: str = "BenchScaleFwdOp", behaviour: str = "") -> object:
    return peer.prepare(op, {"factor": 3.0, "behaviour": behaviour}, {"x": X}, CPU)


def refusal(peer: PeerProcess, behaviour: str) -> str:
    with pytest.raises(BenchError) as raised:
        prepared(peer, behaviour=behaviour)
    return str(raised.value)


def test_a_peer_computes_is_timed_and_outlives_what_it_raises() -> None:
    """One process, because each imports torch."""
    with PeerProcess("fake", FAKE) as peer:
        assert (peer.version, peer.missing) == (torch.__version__, "")
        assert refusal(peer, "raises") == (
            "the peer fake failed to prepare: ValueError: no kernel image"
        )
        found = prepared(peer)
        assert isinstance(found, tuple)
        assert torch.equal(found[0][0], X * 3)
        assert torch.equal(found[1]["x"], X)
        sample = peer.sampler("call", 1)
        assert 0 < sample() < 1
        assert prepared(peer, "OtherFwdOp") == "it has no OtherFwdOp for this call"
        assert refusal(peer, "dies") == "the peer fake ended with code 3 when asked to prepare"
        assert refusal(peer, "") == "the peer fake is not running"


def test_a_broken_adapter_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def make(:\n")
    with PeerProcess("broken", broken) as peer:
        assert peer.missing == (
            "the peer broken failed to hello: SyntaxError: invalid syntax (broken.py, line 1)"
        )


def test_a_peer_that_gives_no_tensor_says_so() -> None:
    with PeerProcess("fake", FAKE) as peer:
        text = refusal(peer, "fraction")
    assert text.startswith("the peer fake gave what is no tensor: Weights only load failed.")


@pytest.mark.parametrize("name", ["torch", "fake"])
def test_peers_that_reports_could_not_tell_apart_are_refused(name: str, tmp_path: Path) -> None:
    paths = [tmp_path / "fake.py", tmp_path / f"{name}.py"]
    for path in paths:
        path.touch()
    with pytest.raises(BenchError) as raised:
        parse_peers([str(path) for path in paths], {"torch"})
    assert str(raised.value) == (
        f"--peer {paths[1]}: reports have a {name!r} already, and samples of two would be mixed; "
        f"copy the adapter to a file of another name"
    )


def test_a_peer_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PEER", "hangs")
    with PeerProcess("fake", FAKE, seconds=0.5) as peer:
        assert peer.missing == "the peer fake gave no answer in 0.5 s to hello"
        peer.drop()


def test_a_peer_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PEER_MODULE", "no_such_library")
    with PeerProcess("fake", FAKE) as peer:
        assert peer.missing == "ModuleNotFoundError: No module named 'no_such_library'"


def test_a_peer_without_an_interpreter_says_so(tmp_path: Path) -> None:
    python = tmp_path / "python"
    with PeerProcess("fake", FAKE, str(python)) as peer:
        assert peer.missing == f"[Errno 2] No such file or directory: '{python}'"


def test_folders_take_the_place_of_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_there.py").write_text("")
    monkeypatch.setenv("FAKE_PEER_MODULE", "only_there")
    with PeerProcess("fake", FAKE, str(tmp_path)) as peer:
        assert peer.missing == ""


def test_a_peer_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "quack.py").write_text("")
    assert parse_peer("quack", tmp_path) == ("quack", tmp_path / "quack.py", "")
    assert parse_peer(f"{FAKE}=/there/python", tmp_path) == ("fake_peer", FAKE, "/there/python")
    with pytest.raises(BenchError) as raised:
        parse_peer("duck", tmp_path)
    assert str(raised.value) == (
        f"there is no peer 'duck': {tmp_path / 'duck.py'} is no file; the adapters in {tmp_path} "
        "are: quack"
    )


def test_the_repositorys_adapters_say_that_their_library_is_missing() -> None:
    folder = HERE.parents[3] / "tools" / "peers"
    if not folder.is_dir():
        pytest.skip("only a checkout has tools/")
    assert find_adapters(folder) == ["flash-attn", "liger-kernel", "quack", "tileops-0.1.0"]
    if importlib.util.find_spec("quack") is None:
        with PeerProcess(*parse_peer("quack", folder)) as peer:
            assert peer.missing == "ModuleNotFoundError: No module named 'quack'"
