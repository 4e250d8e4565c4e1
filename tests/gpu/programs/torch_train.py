"""A small training loop, the same on every run: fixed seed, no autotuning. Recorded from outside, or measured by
torch.profiler: torch_train.py [--profile TRACE.json] [--steps N]. Prints when, by CLOCK_MONOTONIC, the measured steps
began and ended, and the losses."""
import argparse
import contextlib
import json
import time

import torch

BATCH, WIDTH = 2048, 2048


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(7)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device("cuda")
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.LayerNorm(WIDTH),
                                torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 64)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs = torch.randn(4, BATCH, WIDTH).pin_memory()
    targets = torch.randint(0, 64, (4, BATCH))
    kept = torch.empty(BATCH, WIDTH, device=device)
    losses = []

    def step(i):
        x = inputs[i % 4].to(device, non_blocking=True)
        y = targets[i % 4].to(device)
        kept.copy_(x)
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    until = time.monotonic() + 1.5  # libraries loaded, clocks up
    i = 0
    while i < 8 or time.monotonic() < until:
        step(i)
        i += 1
    losses.clear()
    # As many steps before as time allows, so begin anew.
    profiler = contextlib.nullcontext()
    if args.profile:
        from torch.profiler import ProfilerActivity, profile
        profiler = profile(activities=[ProfilerActivity.CUDA])
    torch.cuda.synchronize()
    with profiler:
        begin = time.monotonic_ns()
        for i in range(args.steps):
            step(i)
        torch.cuda.synchronize()
        end = time.monotonic_ns()
    if args.profile:
        profiler.export_chrome_trace(args.profile)
    print(json.dumps({"begin_ns": begin, "end_ns": end, "steps": args.steps, "finite": all(l == l for l in losses)}))


main()
