#!/usr/bin/env python3
"""One Triton kernel over block sizes and numbers of warps: what each configuration's occupancy is, and what it takes.

    triton_sweep.py [--block N --warps N]     without them: all; prints us per launch"""
import argparse

import torch
import triton
import triton.language as tl


@triton.jit
def row_softmax(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, values / tl.sum(values, axis=0), mask=at < columns)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--block", type=int)
    parser.add_argument("--warps", type=int)
    arguments = parser.parse_args()
    rows, columns = 8192, 4000
    x = torch.randn(rows, columns, device="cuda")
    out = torch.empty_like(x)
    blocks = [arguments.block] if arguments.block else [4096, 8192]
    warps = [arguments.warps] if arguments.warps else [1, 2, 4, 8, 16, 32]
    for block in blocks:
        for count in warps:
            def run():
                row_softmax[(rows,)](out, x, columns, BLOCK=block, num_warps=count)
            for _ in range(3):
                run()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(20):
                run()
            end.record()
            torch.cuda.synchronize()
            print(f"block {block} warps {count}: {1e3 * begin.elapsed_time(end) / 20:.1f} us per launch")


if __name__ == "__main__":
    main()
