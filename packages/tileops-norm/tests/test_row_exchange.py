"""What the blocks of a cluster tell each other of several rows, run by threads of the CPU."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from typing import Any

import numpy
import pytest

from tileops.norm.rows.programs import device, exchange, joint

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")

# A thread of the CPU for each thread of the GPU. Warps, blocks and clusters wait for each other at
# barriers of their own; numbers are sent by threads to memory of another block, late and in any
# order, and counted there.
HOST = r"""
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __CUDA_ARCH__ 900

struct Warp { std::barrier<> meet{32}; float given[32]; };
struct Block {
  explicit Block(int threads) : meet(threads), warps(threads / 32) {}
  std::barrier<> meet;
  std::vector<Warp> warps;
  std::atomic<int> expected{0}, arrived{0};
  bool announced = false;
  alignas(16) char memory[1 << 16];
};
std::vector<std::unique_ptr<Block>> cluster;
thread_local Block *block;
thread_local Warp *warp_of;
thread_local int lane_of;

template <class F> float exchange(float value, F from) {
  warp_of->given[lane_of] = value;
  warp_of->meet.arrive_and_wait();
  const float got = warp_of->given[from(lane_of)];
  warp_of->meet.arrive_and_wait();
  return got;
}
float __shfl_xor_sync(unsigned, float value, int mask) {
  return exchange(value, [=](int lane) { return lane ^ mask; });
}
float __shfl_sync(unsigned, float value, int source, int width = 32) {
  return exchange(value, [=](int lane) { return lane / width * width + source; });
}
float rsqrtf(float value) { return 1 / std::sqrt(value); }

namespace clusters {
void expect(void *, int bytes, const void *) { block->expected = bytes, block->announced = true; }
void arrive() {}
void send(void *place, void *, int rank, float value) {
  Block *there = cluster.at(rank).get();
  if (!there->announced) std::puts("sent before it was expected"), std::abort();
  std::this_thread::sleep_for(std::chrono::microseconds(std::rand() % 500));
  std::memcpy(there->memory + (static_cast<char *>(place) - block->memory), &value, 4);
  there->arrived += 4;
}
void await(void *) {
  for (int waited = 0; block->arrived < block->expected; ++waited) {
    if (waited > 100000) std::puts("never came"), std::abort();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}
}  // namespace clusters

@SOURCE@

#ifdef kWarpMeans
int main(int, char **arguments) {
  std::vector<float> numbers(64);
  std::FILE *file = std::fopen(arguments[1], "rb");
  if (std::fread(numbers.data(), 4, 32, file) != 32) return 1;
  std::fclose(file);
  Warp warp;
  std::vector<std::thread> threads;
  for (int t = 0; t < 32; ++t) {
    threads.emplace_back([&, t] {
      warp_of = &warp, lane_of = t;
      rows::mean_of_warp(&numbers[t], &numbers[32 + t], kWarpMeans);
    });
  }
  for (auto &thread : threads) thread.join();
  file = std::fopen(arguments[1], "wb");
  std::fwrite(numbers.data(), 4, 64, file);
  std::fclose(file);
}
#else
constexpr int kRows = @ROWS@, kWarps = @WARPS@, kCluster = @CLUSTER@;

int main(int, char **arguments) {
  // What each thread has of each kind.
  const size_t count = size_t(kCluster) * kWarps * 32 * kRows;
  std::vector<float> sums(count);
  std::FILE *file = std::fopen(arguments[1], "rb");
  if (std::fread(sums.data(), 4, count, file) != count) return 1;
  std::fclose(file);
  for (int b = 0; b < kCluster; ++b) cluster.push_back(std::make_unique<Block>(kWarps * 32));
  std::barrier<> ready(kCluster * kWarps * 32);
  std::vector<std::thread> threads;
  for (int b = 0; b < kCluster; ++b) {
    for (int t = 0; t < kWarps * 32; ++t) {
      threads.emplace_back([&, b, t] {
        block = cluster[b].get(), warp_of = &block->warps[t / 32], lane_of = t % 32;
        const size_t at = (size_t(b) * kWarps * 32 + t) * kRows;
        rows::expect_rows<kRows, kWarps, kCluster, 0>(t);
        ready.arrive_and_wait();
        rows::join_rows<kRows, kWarps, kCluster, 0>(&sums[at], t, b);
      });
    }
  }
  for (auto &thread : threads) thread.join();
  for (auto &one : cluster) {
    if (one->arrived != one->expected) std::puts("more came than was expected"), std::abort();
  }
  file = std::fopen(arguments[1], "wb");
  std::fwrite(sums.data(), 4, count, file);
  std::fclose(file);
}
#endif
"""

#: The compiler, and that it rounds each operation as it stands there.
CXX = ("c++", "-std=c++20", "-O1", "-ffp-contract=off", "-pthread", "-w", "host.cpp", "-o", "host")


def sums_of_lanes() -> str:
    """What comes before the exchange."""
    begin = joint.SOURCE.index("template <int kRows, int kLanes>")
    end = joint.SOURCE.index("// values[r] = what the lanes of row r have")
    return f"namespace rows {{\n{joint.SOURCE[begin:end]}}}\n"


def written_for(folder: Any, rows: int, warps: int, cluster: int) -> list[str]:
    """Writes the exchange as a program of the CPU; what compiles it."""
    text = exchange.SOURCE.replace("__shared__ Findings", "using Found = Findings")
    text = sums_of_lanes() + text
    text = text.replace(
        " found;\n  return found;", ";\n  return *reinterpret_cast<Found *>(block->memory);"
    )
    text, barriers = re.subn(
        r'asm volatile\("bar\.sync 0;".*?;', "block->meet.arrive_and_wait();", text
    )
    assert barriers == 1
    assert "asm" not in text
    assert "__shared__" not in text
    text = HOST.replace("@SOURCE@", text)
    for name, value in {"ROWS": rows, "WARPS": warps, "CLUSTER": cluster}.items():
        text = text.replace(f"@{name}@", str(value))
    (folder / "host.cpp").write_text(text)
    return [*CXX]


@pytest.mark.parametrize(
    ("rows", "warps", "cluster"), [(4, 2, 4), (2, 3, 2), (2, 4, 8), (1, 2, 8), (8, 5, 2)]
)
def test_every_thread_gets_the_sum_of_every_row(
    rows: int, warps: int, cluster: int, tmp_path: Any
) -> None:
    """All threads get the same bits, which are those of float64 to a few roundings; rows of zeros,
    as are those past the last, of NaN and of infinity change nothing of the others."""
    held = 16  # elements of a row that a thread has
    random = numpy.random.default_rng(rows * warps * cluster)
    x = random.standard_normal((rows, cluster, warps, 32, held)) * 3 + 20
    x = x.astype("float32").astype("float64")
    for row, special in zip(range(1, rows), (0.0, math.nan, math.inf), strict=False):
        x[row] = special if row == 1 else x[row]
        x[row, -1, -1, 17, 3] = special
    squares = numpy.square(x).sum(-1)
    subprocess.run(written_for(tmp_path, rows, warps, cluster), cwd=tmp_path, check=True)
    given = squares.transpose(1, 2, 3, 0).astype("float32")
    (tmp_path / "numbers").write_bytes(given.tobytes())
    subprocess.run([tmp_path / "host", tmp_path / "numbers"], check=True, timeout=120)
    got = numpy.frombuffer((tmp_path / "numbers").read_bytes(), "float32").reshape(-1, rows)
    assert (got.view("uint32") == got[:1].view("uint32")).all()

    found = numpy.square(x.reshape(rows, -1)).sum(-1)
    # Far fewer than a hundred additions lead to a number, and each rounds once.
    numpy.testing.assert_allclose(got[0], found, rtol=100 * 2.0**-24, atol=0)


@pytest.mark.parametrize("rows", [3, 5, 6, 16])
def test_rows_that_share_no_warp_evenly_do_not_compile(rows: int, tmp_path: Any) -> None:
    """With 3 rows, a warp's last two lanes sent sums of a fourth that no block expected, one of
    them to the barrier's own place: the card waited for ever."""
    command = written_for(tmp_path, rows, 2, 4)
    failed = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert failed.returncode != 0
    assert "static assertion failed" in failed.stderr


@pytest.mark.parametrize("size", [2048.0, 640.0, 1.0, 0.0])
def test_a_warps_mean_is_known_to_twice_the_digits(size: float, tmp_path: Any) -> None:
    """From its threads' sums, which are as large as rows of a large mean have them. The sum of all
    distances from the rounded mean was counted element by element."""
    begin = device.SOURCE.index("__device__ __forceinline__ void mean_of_warp")
    text = device.SOURCE[begin : device.SOURCE.index("\n}\n", begin) + 3]
    text = HOST.replace("@SOURCE@", f"namespace rows {{\n{text}}}\n")
    (tmp_path / "host.cpp").write_text(f"#define kWarpMeans {size}f\n{text}")
    subprocess.run(CXX, cwd=tmp_path, check=True)
    random = numpy.random.default_rng()
    sums = (random.standard_normal(32) * 3 + 64000.5).astype("float32")
    if size == 0.0:  # a warp that is outside of the row
        sums[:] = 0.0
    (tmp_path / "numbers").write_bytes(sums.tobytes())
    subprocess.run([tmp_path / "host", tmp_path / "numbers"], check=True, timeout=120)
    found = numpy.frombuffer((tmp_path / "numbers").read_bytes(), "float32").reshape(2, 32)
    assert (found == found[:, :1]).all()
    mean, distance = found[:, 0].astype("float64")
    total = sums.astype("float64").sum()
    if size == 0.0:
        assert (mean, distance) == (0.0, 0.0)
        return
    assert abs(mean - total / size) <= abs(total / size) * 2.0**-23
    # What five two-sums leave over is added up in float32, and so is the distance rounded.
    assert abs(distance - (total - size * mean)) <= abs(total) * 2.0**-44
