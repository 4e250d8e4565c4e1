"""Triton: kernels with few and many registers, shared memory by tl.dot, two streams, with output that is the same on
every run: all numbers are small integers."""
import hashlib

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(z + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def matmul_kernel(a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def row_sum_kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * n + at, mask=at < n, other=0.0), axis=0))


def show(name, tensor):
    torch.cuda.synchronize()
    data = tensor.detach().to("cpu", torch.float64).contiguous().numpy().tobytes()
    print(f"{name} {tuple(tensor.shape)} {hashlib.sha256(data).hexdigest()[:16]}", flush=True)


def whole_numbers(seed, *shape):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to("cuda", torch.float32)


def main():
    n = 100_000
    x, y = whole_numbers(1, n), whole_numbers(2, n)
    z = torch.empty_like(x)
    for block in (128, 512, 1024):
        for _ in range(60):
            add_kernel[(triton.cdiv(n, block),)](x, y, z, n, BLOCK=block)
    show("add", z)

    a, b = whole_numbers(3, 256, 128).half(), whole_numbers(4, 128, 192).half()
    c = torch.empty((256, 192), device="cuda", dtype=torch.float32)
    for _ in range(40):
        matmul_kernel[(4, 3)](a, b, c, 128, 192, BM=64, BN=64, BK=32)
    show("matmul", c)

    rows = whole_numbers(5, 64, 700)
    sums = torch.empty(64, device="cuda", dtype=torch.float32)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    for i in range(40):
        with torch.cuda.stream(streams[i % 2]):
            row_sum_kernel[(64,)](rows, sums, 700, BLOCK=1024)
    show("row_sum", sums)


main()
