#!/usr/bin/env python3
"""A small training loop as people write it first, and with what gpuflight says of it applied.

    train_step.py [--improved] [--steps N]

Batches come from pageable memory and the loss is read each step; improved: pinned batches copied ahead, the loss read at
the end, the step in one CUDA graph. Prints ms per step."""
import argparse
import time

import torch


class Mlp(torch.nn.Module):
    def __init__(self, width=512, depth=6):
        super().__init__()
        self.layers = torch.nn.Sequential(*[m for _ in range(depth) for m in (torch.nn.Linear(width, width), torch.nn.GELU())])

    def forward(self, x):
        return self.layers(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--improved", action="store_true")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    model, batch = Mlp().cuda(), 256
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    data = [torch.randn(batch, 512) for _ in range(8)]

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    if arguments.improved:
        data = [d.pin_memory() for d in data]
        static = torch.empty(batch, 512, device="cuda")
        static.copy_(data[0])
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step(static)

        def one(i):
            static.copy_(data[i % len(data)], non_blocking=True)
            graph.replay()
            return loss
    else:
        def one(i):
            loss = step(data[i % len(data)].cuda())
            loss.item()
            return loss
    for i in range(10):
        one(i)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for i in range(arguments.steps):
        last = one(i)
    torch.cuda.synchronize()
    print(f"{1e3 * (time.perf_counter() - begin) / arguments.steps:.3f} ms per step, loss {last.item():.4f}")


if __name__ == "__main__":
    main()
