"""Sums and sums of squares by products of matrices, run by threads of the CPU."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import numpy
import pytest
import torch

from tileops.norm.rows.programs import products

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")

# A thread of the CPU for each lane of a warp. The product is worked out from what all lanes hold,
# as the PTX manual lays out the fragments of mma.m16n8k16.
HOST = r"""
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#define __device__
#define __forceinline__ inline

std::barrier<> meet(32);
uint32_t a_of[32][4], b_of[32][2];
thread_local int lane_of;

float number(uint32_t word, int half, bool is_half) {
  const uint16_t bits = half ? word >> 16 : word & 0xffff;
  float value;
  if (is_half) {
    _Float16 small;
    std::memcpy(&small, &bits, 2);
    value = small;
  } else {
    const uint32_t wide = uint32_t(bits) << 16;
    std::memcpy(&value, &wide, 4);
  }
  return value;
}

namespace rows {
template <bool kHalf>
void multiply(float *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
              uint32_t b1) {
  const uint32_t a[] = {a0, a1, a2, a3}, b[] = {b0, b1};
  std::memcpy(a_of[lane_of], a, sizeof a);
  std::memcpy(b_of[lane_of], b, sizeof b);
  meet.arrive_and_wait();
  for (int i = 0; i < 4; ++i) {
    const int row = lane_of / 4 + i / 2 * 8, column = lane_of % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int among = k % 8 / 2;
      c[i] += number(a_of[row % 8 * 4 + among][row / 8 + k / 8 * 2], k % 2, kHalf) *
              number(b_of[column * 4 + among][k / 8], k % 2, kHalf);
    }
  }
  meet.arrive_and_wait();
}
@SOURCE@
}  // namespace rows

int main(int, char **arguments) {
  constexpr int kAccesses = @ACCESSES@;
  std::vector<uint32_t> words(32 * kAccesses * 4);
  float found[2][32];
  std::FILE *file = std::fopen(arguments[1], "rb");
  if (std::fread(words.data(), 4, words.size(), file) != words.size()) return 1;
  std::fclose(file);
  std::vector<std::thread> threads;
  for (int t = 0; t < 32; ++t) {
    threads.emplace_back([&, t] {
      lane_of = t;
      float sums[4 * @CHAINS@] = {};
      for (int k = 0; k < kAccesses; ++k) {
        rows::add_products<4, @CHAINS@, @HALF@>(sums, &words[(t * kAccesses + k) * 4]);
      }
      rows::take_products<@CHAINS@>(&found[0][t], &found[1][t], sums, 64 + t);
    });
  }
  for (auto &thread : threads) thread.join();
  file = std::fopen(arguments[1], "wb");
  std::fwrite(found, 4, 64, file);
  std::fclose(file);
}
"""


def summed(x: torch.Tensor, chains: int, folder: Any) -> tuple[float, float]:
    """What a warp's lanes have to add to the sum and to the sum of squares of x [32, accesses, 8],
    added up."""
    text = products.SOURCE
    text = text[text.index("template <int kWords, int kChains") : text.index("// kCount elements")]
    assert "asm" not in text
    text = HOST.replace("@SOURCE@", text)
    half = "true" if x.dtype == torch.float16 else "false"
    for name, value in {"ACCESSES": x.shape[1], "CHAINS": chains, "HALF": half}.items():
        text = text.replace(f"@{name}@", str(value))
    (folder / "host.cpp").write_text(text)
    compile_it = ("c++", "-std=c++20", "-O1", "-pthread", "-w", "host.cpp", "-o", "host")
    subprocess.run(compile_it, cwd=folder, check=True)
    (folder / "numbers").write_bytes(x.view(torch.int16).numpy().tobytes())
    subprocess.run([folder / "host", folder / "numbers"], check=True, timeout=120)
    found = numpy.frombuffer((folder / "numbers").read_bytes(), "float32").astype("float64")
    return found[:32].sum(), found[32:].sum()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("accesses", "chains"), [(3, 1), (4, 2)])
def test_a_warps_sums_are_those_of_its_elements(
    dtype: torch.dtype, accesses: int, chains: int, tmp_path: Any
) -> None:
    """Each element counts once, in both sums."""
    x = (torch.randn(32, accesses, 8) * 3 + 1).to(dtype)
    total, squares = summed(x, chains, tmp_path)
    wide = x.double()
    # Fewer than 1024 additions of float32, each of which rounds once.
    bound = 1024 * 2.0**-24
    assert abs(total - wide.sum().item()) <= bound * wide.abs().sum().item()
    assert abs(squares - wide.square().sum().item()) <= bound * wide.square().sum().item()


def test_what_is_not_finite_spoils_no_other_sum(tmp_path: Any) -> None:
    """An infinity is one in both; NaN is NaN: a zero times either, off the diagonal, is not
    looked at."""
    x = torch.zeros(32, 1, 8, dtype=torch.bfloat16)
    x[21, 0, 5] = float("inf")
    assert summed(x, 1, tmp_path) == (float("inf"), float("inf"))
    x[21, 0, 5] = float("nan")
    assert all(value != value for value in summed(x, 1, tmp_path))
