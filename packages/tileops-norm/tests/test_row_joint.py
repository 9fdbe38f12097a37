"""What a block finds of several rows at once, run by threads of the CPU."""

from __future__ import annotations

import math
import shutil
import subprocess
from typing import Any

import numpy
import pytest

from tileops.norm.rows.programs import joint

from .test_row_exchange import CXX, HOST

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")

EPS = 1e-5

# A thread has kHeld elements of each of its kRows rows; a block is kGroups times kLanes threads.
MAIN = r"""
constexpr int kRows = @ROWS@, kLanes = @LANES@, kGroups = @GROUPS@, kHeld = @HELD@;
constexpr bool kCorrected = @CORRECTED@;
constexpr int kThreads = kLanes * kGroups;
constexpr float kCount = kLanes * kHeld, kCells = (kLanes < 32 ? kLanes : 32) * kHeld;

int main(int, char **arguments) {
  std::vector<float> x(size_t(kThreads) * kRows * kHeld), y(size_t(kThreads) * kRows * 4);
  std::FILE *file = std::fopen(arguments[1], "rb");
  if (std::fread(x.data(), 4, x.size(), file) != x.size()) return 1;
  std::fclose(file);
  cluster.push_back(std::make_unique<Block>(kThreads));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      block = cluster[0].get(), warp_of = &block->warps[t / 32], lane_of = t % 32;
      const float *held = &x[size_t(t) * kRows * kHeld];
      float means[kRows], lows[kRows], distances[kRows], factors[kRows], rms[kRows];
      for (int r = 0; r < kRows; ++r) {
        means[r] = lows[r] = distances[r] = factors[r] = rms[r] = 0.0f;
        for (int i = 0; i < kHeld; ++i) {
          means[r] += held[r * kHeld + i];
          rms[r] += held[r * kHeld + i] * held[r * kHeld + i];
        }
      }
      rows::join_squares<kRows, kLanes, kGroups>(rms, kCount, @EPS@, t);
      rows::means_of_warp<kRows, kLanes>(means, kCells, t);
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < kHeld; ++i) {
          const float gap = held[r * kHeld + i] - means[r];
          distances[r] += gap, factors[r] += gap * gap;
        }
      }
      rows::join_distances<kRows, kLanes, kGroups, kCorrected, @EVEN@>(
          means, lows, distances, factors, kCells, kCount, @EPS@, t);
      for (int r = 0; r < kRows; ++r) {
        float *out = &y[(size_t(t) * kRows + r) * 4];
        out[0] = rms[r], out[1] = means[r], out[2] = lows[r], out[3] = factors[r];
      }
    });
  }
  for (auto &thread : threads) thread.join();
  file = std::fopen(arguments[1], "wb");
  std::fwrite(y.data(), 4, y.size(), file);
  std::fclose(file);
}
"""


def found_by_threads(
    x: Any, lanes: int, groups: int, corrected: bool, even: bool, folder: Any
) -> Any:
    """1 / rms, mean, its correction and 1 / deviation: [group, lane, row, 4], of x
    [group, lane, row, held]."""
    rows, held = x.shape[2:]
    text = joint.SOURCE.replace("alignas(16) __shared__", "static").replace(
        "__syncthreads()", "block->meet.arrive_and_wait()"
    )
    text = HOST[: HOST.index("#ifdef kWarpMeans")].replace("@SOURCE@", text) + MAIN
    numbers = {"ROWS": rows, "LANES": lanes, "GROUPS": groups, "HELD": held}
    words = {"CORRECTED": str(corrected).lower(), "EPS": f"{EPS}f", "EVEN": str(even).lower()}
    for name, value in {**numbers, **words}.items():
        text = text.replace(f"@{name}@", str(value))
    (folder / "host.cpp").write_text(text)
    subprocess.run(CXX, cwd=folder, check=True)
    (folder / "numbers").write_bytes(x.astype("float32").tobytes())
    subprocess.run([folder / "host", folder / "numbers"], check=True, timeout=120)
    found = numpy.frombuffer((folder / "numbers").read_bytes(), "float32")
    return found.reshape(groups, lanes, rows, 4)


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize(
    ("rows", "lanes", "groups"),
    # Warps that are more than the lanes of a row, fewer, and no power of two; parts of a warp.
    [
        (4, 512, 1),
        (8, 160, 1),
        (2, 96, 2),
        (1, 64, 2),
        (4, 256, 1),
        (4, 32, 2),
        (2, 8, 8),
        (4, 2, 16),
    ],
)
def test_every_thread_gets_the_statistics_of_its_rows(
    rows: int, lanes: int, groups: int, corrected: bool, tmp_path: Any
) -> None:
    """All threads of a row get the same bits, those of float64 to a few roundings; rows of NaN
    change nothing of the others, and a row has the same bits at each place of its thread."""
    held = 4
    random = numpy.random.default_rng(rows * lanes + groups)
    x = random.standard_normal((groups, lanes, rows, held)) * 3
    # What a correction is for; without one, a rounded mean is as far off.
    x = (x + (3000 if corrected else 0)).astype("float32")
    if rows > 1:
        x[:, :, 1] = x[:, :, 0]
    if rows > 2:
        x[0, lanes // 3, 2, 1] = math.nan
    found = found_by_threads(x, lanes, groups, corrected, lanes % 64 == 0, tmp_path)
    assert (found.view("uint32") == found[:, :1].view("uint32")).all()
    found = found[:, 0].astype("float64")
    if rows > 1:
        assert (found[:, 1] == found[:, 0]).all()
    if rows > 2:
        assert numpy.isnan(found[0, 2, [0, 1, 3]]).all()
        found, x = numpy.delete(found, 2, 1), numpy.delete(x, 2, 2)

    exact = x.astype("float64").transpose(0, 2, 1, 3).reshape(groups, -1, lanes * held)
    mean, deviation = exact.mean(-1), numpy.sqrt(exact.var(-1) + EPS)
    # Far fewer than a hundred additions lead to a number, and each rounds once.
    few = 100 * 2.0**-24
    rms = 1 / numpy.sqrt(numpy.square(exact).mean(-1) + EPS)
    numpy.testing.assert_allclose(found[..., 0], rms, rtol=few, atol=0)
    assert (abs(found[..., 1] + found[..., 2] - mean) <= few * deviation).all()
    numpy.testing.assert_allclose(found[..., 3], 1 / deviation, rtol=few, atol=0)
    assert corrected or (found[..., 2] == 0.0).all()
