"""RMSNorm's programs: the configs cover every width, the CUDA builds, and the numbers are right."""

import functools
import math
import shutil

import pytest
import torch

from tileops.core import tilelang_backend
from tileops.norm.rms_norm import configs, programs

DTYPES = ("float16", "bfloat16", "float32")
NAMES = ("rms_norm", "rms_norm_on_chip", "rms_norm_streaming")
ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_unheard_of")
#: Every width up to 4200, then the neighbours of everything at which a layout may change.
WIDTHS = (
    *range(1, 4201),
    *(w + d for p in range(12, 19) for w in (2**p, 3 * 2 ** (p - 1)) for d in (-8, -1, 0, 1, 8)),
)
WIDTHS = tuple(sorted({w for w in WIDTHS if w <= configs.MAX_WIDTH}))

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def weight_dtypes(dtype):
    return dict.fromkeys((None, dtype, "float32"))


def covered(config, n):
    """Elements of a row that the config's accesses reach."""
    if isinstance(config, configs.RowConfig):
        return config.accesses(n) * config.threads_per_row * config.vector
    if isinstance(config, configs.OnChipConfig):
        accesses = config.in_registers + config.in_shared
    else:
        accesses = config.in_shared + config.streamed(n)
    return accesses * config.threads * config.vector


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_width_has_a_layout(dtype, aligned):
    """The layout of the selected program reaches the whole row and is one that CUDA can launch."""
    for n in WIDTHS:
        for weight_dtype in weight_dtypes(dtype):
            name = programs.select(n, dtype, aligned)
            config = programs.choose_config(name, n, dtype, weight_dtype, aligned)
            where = (n, name, config)
            assert covered(config, n) >= n, where
            assert n % config.vector == 0, where
            assert config.vector * configs.ITEMSIZE[dtype] <= configs.ACCESS_BYTES, where
            assert aligned or config.vector == 1, where
            if name == "rms_norm":
                lanes = config.threads_per_row
                assert lanes & (lanes - 1) == 0 or lanes % 32 == 0, where
                assert lanes >= 32 or 32 % lanes == 0, where
                assert 1 <= lanes * config.rows_per_block <= 1024, where
            else:
                assert config.threads % 32 == 0, where
                assert config.threads <= 1024, where
                assert config.in_shared % config.unroll == 0, where
            if name == "rms_norm_on_chip":
                assert config.in_registers % config.unroll == 0, where
                # What stays in registers, in bytes a thread, of the 256 that 1024 threads leave.
                held = config.in_registers * config.vector * configs.ITEMSIZE[dtype]
                assert held <= 64, where


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_program_has_a_layout_for_every_width_that_it_may_be_asked_for(dtype):
    """``select`` may move its thresholds without a layout breaking."""
    for n in WIDTHS:
        for name in NAMES:
            config = programs.choose_config(name, n, dtype, None, True)
            assert covered(config, n) >= n
            if name != "rms_norm":
                assert config.in_shared % config.unroll == 0


@pytest.mark.parametrize(
    ("n", "dtype", "name", "config"),
    [
        (4096, "bfloat16", "rms_norm", configs.RowConfig(256, 1, 8, True)),
        (4095, "bfloat16", "rms_norm", configs.RowConfig(256, 1, 1, True)),
        (8192, "bfloat16", "rms_norm", configs.RowConfig(256, 1, 8, False)),
        (16384, "bfloat16", "rms_norm", configs.RowConfig(256, 1, 8, False)),
        (8192, "float32", "rms_norm", configs.RowConfig(512, 1, 4, False)),
        (32767, "bfloat16", "rms_norm_on_chip", configs.OnChipConfig(512, 1, 0, 64, 8)),
        (32768, "bfloat16", "rms_norm_on_chip", configs.OnChipConfig(512, 8, 0, 8, 4)),
        (65536, "bfloat16", "rms_norm_on_chip", configs.OnChipConfig(1024, 8, 4, 4, 4)),
        (131072, "bfloat16", "rms_norm_on_chip", configs.OnChipConfig(1024, 8, 4, 12, 4)),
        (262144, "bfloat16", "rms_norm_streaming", configs.StreamingConfig(1024, 8, 12, 4, 132)),
    ],
)
def test_what_was_fastest_is_chosen(n, dtype, name, config):
    """At the shapes that were timed on an H200 the layouts are those that won there."""
    assert programs.select(n, dtype) == name
    assert programs.choose_config(name, n, dtype, dtype, True) == config


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_select_is_total_and_fits_the_architecture(dtype, arch):
    """Every width gets a program, and one that asks for no more shared memory than there is."""
    limit = configs.SHARED_BYTES.get(arch, min(configs.SHARED_BYTES.values()))
    for n in WIDTHS:
        for aligned in (True, False):
            name = programs.select(n, dtype, aligned, arch)
            assert name in NAMES
            if name != "rms_norm":
                config = programs.choose_config(name, n, dtype, None, aligned, arch)
                assert config.shared_bytes(dtype) <= limit


def test_configs_are_values():
    """Equal questions give equal, hashable layouts: they are part of a kernel's identity."""
    for name in NAMES:
        first = programs.choose_config(name, 4096, "float16", None, True)
        second = programs.choose_config(name, 4096, "float16", None, True)
        assert first == second
        assert hash(first) == hash(second)


def test_an_architecture_is_named_from_its_capability():
    """The "a" targets are those whose newest instructions need one."""
    named = {c: tilelang_backend.arch_of_capability(*c) for c in ((8, 0), (8, 9), (9, 0), (10, 0))}
    assert named == {(8, 0): "sm_80", (8, 9): "sm_89", (9, 0): "sm_90a", (10, 0): "sm_100a"}


@functools.cache
def built(name, n, dtype, weight_dtype, aligned, arch):
    config = programs.choose_config(name, n, dtype, weight_dtype, aligned, arch)
    return tilelang_backend.build(
        lambda: programs.program(name, n, dtype, weight_dtype, config), arch=arch
    )


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "n", "dtype", "weight_dtype", "aligned", "expected"),
    [
        ("rms_norm", 4096, "bfloat16", "float32", True, "uint4"),
        ("rms_norm", 513, "float16", None, True, "< 513"),
        ("rms_norm", 8192, "float32", "float32", True, "__launch_bounds__(512, 1)"),
        ("rms_norm_on_chip", 131072, "bfloat16", "bfloat16", True, "shared"),
        ("rms_norm_on_chip", 32767, "float16", "float32", True, "< 32767"),
        ("rms_norm_streaming", 262144, "float32", "float32", True, "float4"),
    ],
)
def test_each_program_builds(name, n, dtype, weight_dtype, aligned, expected):
    """The CUDA compiles, has the wide accesses or guards it should, and no 32-bit row offset."""
    program = built(name, n, dtype, weight_dtype, aligned, "sm_90a")
    assert program.symbol == name
    assert expected in program.source
    assert f"((int64_t)blockIdx.x) * (int64_t){n}" in program.source
    # Rows that are read once are loaded plainly: asynchronous copies lost there.
    assert ("cp_async" in program.source) == (name == "rms_norm_streaming")


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a"])
@pytest.mark.parametrize("name", ["rms_norm_on_chip", "rms_norm_streaming"])
def test_other_architectures_build(name, arch):
    """What holds rows in shared memory compiles for other GPUs, with asynchronous copies or not."""
    program = built(name, 65536, "bfloat16", "bfloat16", True, arch)
    assert program.symbol == name


@needs_nvcc
def test_a_program_travels_without_tilelang(tmp_path):
    """An exported library opens through ``load`` and offers the same entry function."""
    program = built("rms_norm", 4096, "bfloat16", "float32", True, "sm_90a")
    path = tmp_path / "program.so"
    program.export(path)
    entry = tilelang_backend.load(path, program.symbol)
    with pytest.raises(RuntimeError, match="num_args should be 5"):
        entry()


def test_a_failing_build_says_what_failed():
    """Whatever a factory or the compiler raises arrives as one type, with its cause."""

    def factory():
        raise ValueError("no such layout")

    with pytest.raises(tilelang_backend.KernelBuildError) as caught:
        tilelang_backend.build(factory, arch="sm_90a")
    assert str(caught.value) == "building factory for sm_90a failed: no such layout"
    assert isinstance(caught.value.__cause__, ValueError)


# What follows launches. The oracle is float64, the inputs are fresh, the output starts as NaN.


def tolerance(config, n, dtype):
    """The relative error allowed: float32 sums and products, then one rounding to ``dtype``.

    A sum of squares has no cancellation, so its relative error is at most the longest chain of
    additions times 2**-24, and the root halves it. Ten more roundings cover the mean, eps, rsqrtf
    (2 ulp) and the two products.
    """
    lanes = config.threads_per_row if isinstance(config, configs.RowConfig) else config.threads
    chain = config.vector + math.ceil(n / (lanes * config.vector)) + 4 + 5 + math.ceil(lanes / 32)
    return (chain / 2 + 10) * 2.0**-24 + torch.finfo(getattr(torch, dtype)).eps / 2


def oracle(x, weight, eps):
    x = x.double()
    y = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return y if weight is None else y * weight.double()


def tensor(shape, dtype, aligned, device="cuda"):
    """A contiguous tensor of normal numbers whose start is, or is not, 16-byte aligned."""
    size = math.prod(shape)
    flat = torch.randn(size + 1, device=device).to(getattr(torch, dtype))
    flat = flat[:-1] if aligned else flat[1:]
    return flat.view(shape)


def launch(program, x, weight, y, eps=1e-5):
    """Launch once, on the current stream and device."""
    tensors = [t for t in (x, weight, y) if t is not None]
    words = [*map(str, range(len(tensors))), "rows", "eps"]
    numbers = {"rows": x.numel() // x.shape[-1], "eps": eps}
    device = torch.cuda.current_device()
    tilelang_backend.launcher(program.launch, device, words, numbers)(*tensors)


def check(program, config, rows, n, dtype, weight_dtype, aligned, eps=1e-5):
    """Launch once on fresh numbers and compare every element with the oracle."""
    x = tensor((rows, n), dtype, aligned)
    weight = None if weight_dtype is None else tensor((n,), weight_dtype, aligned)
    y = tensor((rows, n), dtype, aligned).fill_(math.nan)
    launch(program, x, weight, y, eps)
    expected = oracle(x, weight, eps)
    # Below the smallest normal number a rounding is absolute: half the smallest subnormal.
    info = torch.finfo(x.dtype)
    allowed = expected.abs() * tolerance(config, n, dtype) + info.tiny * info.eps / 2
    excess = ((y.double() - expected).abs() - allowed).nan_to_num(nan=math.inf).max().item()
    assert excess <= 0, (excess, rows, n, dtype, weight_dtype, aligned, config)


CASES = [
    *(("float16", None, True), ("bfloat16", "bfloat16", True), ("bfloat16", "float32", False)),
    *(("float32", "float32", True), ("float32", None, False), ("float16", "float32", True)),
]


WIDTHS = [1, 3, 127, 513, 1000, 4096, 4097, 8192, 16384, 32767, 65536, 131072, 150001, 262144]


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("n", "dtype", "weight_dtype", "aligned"),
    # Each width meets two of the cases, and each case four or five widths: all pairs would take
    # minutes to build.
    [(n, *CASES[(i + k) % 6]) for i, n in enumerate(WIDTHS) for k in (0, 3)],
)
def test_matches_the_oracle(n, dtype, weight_dtype, aligned):
    """The selected program is right at one row, at a few, and at many."""
    name = programs.select(n, dtype, aligned, tilelang_backend.device_arch())
    _run(name, n, dtype, weight_dtype, aligned, (1, 3, 2048 if n <= 16384 else 300))


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("n", "dtype"),
    [(32768, "bfloat16"), (40001, "float16"), (150000, "float16"), (65535, "float32")],
)
def test_rows_that_a_block_takes_by_turns(n, dtype):
    """Many rows a block: what is fetched ahead never overwrites what is still to be read."""
    for attempt in range(3):
        _run("rms_norm_streaming", n, dtype, dtype, True, (1000 + attempt,))


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 33, 1000, 8200])
def test_every_program_is_right_where_another_is_selected(name, n):
    """A threshold may move: a program is right at widths that it does not serve today."""
    _run(name, n, "bfloat16", "float32", True, (1, 65))


def _run(name, n, dtype, weight_dtype, aligned, rows):
    arch = tilelang_backend.device_arch()
    config = programs.choose_config(name, n, dtype, weight_dtype, aligned, arch)
    program = built(name, n, dtype, weight_dtype, aligned, arch)
    for count in rows:
        check(program, config, count, n, dtype, weight_dtype, aligned)


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "n"), [("rms_norm", 1000), ("rms_norm_on_chip", 65536), ("rms_norm_streaming", 65536)]
)
def test_nan_and_infinity_spread_as_in_pytorch(name, n):
    """A NaN or an infinity poisons its own row as ``F.rms_norm`` would, and no other row."""
    x = tensor((4, n), "float16", True)
    x[1, n // 2] = math.nan
    x[2, n - 1] = -math.inf
    y = torch.full_like(x, math.nan)
    program = built(name, n, "float16", None, True, tilelang_backend.device_arch())
    launch(program, x, None, y)
    expected = torch.nn.functional.rms_norm(x, (n,), None, 1e-5)
    torch.testing.assert_close(y, expected, rtol=2e-3, atol=1e-6, equal_nan=True)
    assert y[1].isnan().all()
    assert y[2].isnan().sum() == 1
    assert not y[::3].isnan().any()


@needs_gpu
@pytest.mark.gpu
def test_launches_on_the_current_stream():
    """On a side stream the kernel reads what that stream wrote before it, not what was there."""
    x, fresh = (tensor((512, 4096), "float16", True) for _ in range(2))
    y = torch.full_like(x, math.nan)
    program = built("rms_norm", 4096, "float16", None, True, tilelang_backend.device_arch())
    launch(program, x, None, y)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)
        x.copy_(fresh)
        launch(program, x, None, y)
    torch.cuda.synchronize()
    torch.testing.assert_close(y.double(), oracle(fresh, None, 1e-5), rtol=1e-3, atol=1e-6)


@needs_gpu
@pytest.mark.gpu
def test_a_captured_launch_replays():
    """A launch during a capture becomes a node of the graph and reads new values at replay."""
    x = tensor((64, 4096), "float16", True)
    y = torch.full_like(x, math.nan)
    program = built("rms_norm", 4096, "float16", None, True, tilelang_backend.device_arch())
    launch(program, x, None, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(program, x, None, y)
    x.copy_(tensor((64, 4096), "float16", True))
    y.fill_(math.nan)
    graph.replay()
    torch.testing.assert_close(y.double(), oracle(x, None, 1e-5), rtol=1e-3, atol=1e-6)


@needs_gpu
@pytest.mark.gpu
def test_offsets_pass_two_to_the_31():
    """More than 2**31 elements: the last rows are read and written where they are."""
    rows, n = 2**31 // 4096 + 3, 4096
    x = torch.empty((rows, n), dtype=torch.float16, device="cuda").normal_()
    y = torch.full_like(x, math.nan)
    program = built("rms_norm", n, "float16", None, True, tilelang_backend.device_arch())
    launch(program, x, None, y)
    for part in (slice(0, 4), slice(-4, None)):
        torch.testing.assert_close(
            y[part].double(), oracle(x[part], None, 1e-5), rtol=1e-3, atol=1e-6
        )
    assert not y.isnan().any()
