"""A decode loop as an inference server runs it: 32 requests in one batch, the layers of a small transformer in one CUDA
graph for each batch size, token and position copied in, the next token chosen outside of the graph and copied out at each
step; requests end one by one, and the batch shrinks to the next size that has a graph.

    decode_loop.py ROUNDS [--paired]

A round decodes all 32 requests. One JSON line: ns a step by round, and a sum of the tokens. With --paired, in a process
that carries the recorder, recording is paused and resumed in turns: rounds come in pairs, which of them comes first
changes."""
import ctypes
import json
import sys
import time

import torch
import torch.nn.functional as F

REQUESTS, LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY = 32, 4, 512, 8, 160, 4096
SIZES = (32, 16, 8, 4, 2, 1)


class Layer:
    def __init__(self):
        def weights(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.half) * shape[-1] ** -0.5
        self.qkv, self.out = weights(3 * WIDTH, WIDTH), weights(WIDTH, WIDTH)
        self.up, self.down = weights(2 * WIDTH, WIDTH), weights(WIDTH, 2 * WIDTH)
        self.keys = torch.zeros(REQUESTS, HEADS, LENGTH, WIDTH // HEADS, device="cuda", dtype=torch.half)
        self.values = torch.zeros_like(self.keys)

    def __call__(self, x, positions, mask):
        n = x.shape[0]
        query, key, value = F.linear(F.layer_norm(x, (WIDTH,)), self.qkv).view(n, 3, HEADS, -1).unbind(1)
        rows = torch.arange(n, device="cuda")
        self.keys[rows, :, positions] = key
        self.values[rows, :, positions] = value
        seen = F.scaled_dot_product_attention(query.unsqueeze(2), self.keys[:n], self.values[:n], attn_mask=mask)
        x = x + F.linear(seen.reshape(n, WIDTH), self.out)
        return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (WIDTH,)), self.up)), self.down)


class Decoder:
    def __init__(self):
        torch.manual_seed(1)
        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.half)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.tokens = torch.zeros(REQUESTS, device="cuda", dtype=torch.long)
        self.positions = torch.zeros(REQUESTS, device="cuda", dtype=torch.long)
        self.graphs = {size: self.capture(size) for size in SIZES}
        self.lengths = [40 + (37 * i) % 100 for i in range(REQUESTS)]

    def forward(self, size):
        positions = self.positions[:size]
        mask = (torch.arange(LENGTH, device="cuda")[None, :] <= positions[:, None]).view(size, 1, 1, LENGTH)
        x = self.embedding[self.tokens[:size]]
        for layer in self.layers:
            x = layer(x, positions, mask)
        return F.linear(F.layer_norm(x, (WIDTH,)), self.embedding)

    def capture(self, size):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.forward(size)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self.forward(size)
        return graph, logits

    def round(self):
        """Returns steps, ns, and the sum of all tokens."""
        left = sorted(self.lengths, reverse=True)
        tokens = torch.arange(REQUESTS, dtype=torch.long).pin_memory()
        positions = torch.zeros(REQUESTS, dtype=torch.long).pin_memory()
        total, steps = 0, 0
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        while left:
            size = next(s for s in reversed(SIZES) if s >= len(left))
            self.tokens.copy_(tokens, non_blocking=True)
            self.positions.copy_(positions, non_blocking=True)
            graph, logits = self.graphs[size]
            graph.replay()
            chosen = logits[:len(left)].argmax(-1).cpu()
            tokens[:len(left)] = chosen
            positions[:len(left)] += 1
            total += int(chosen.sum())
            steps += 1
            while left and left[-1] <= steps:
                left.pop()
        return steps, time.perf_counter_ns() - begin, total


def main():
    rounds, paired = int(sys.argv[1]), "--paired" in sys.argv
    recorder = ctypes.CDLL(None) if paired else None
    decoder = Decoder()
    times = {"recorded": [], "paused": []} if paired else {"plain": []}
    totals = set()
    for _ in range(3):
        totals.add(decoder.round()[2])
    for i in range(rounds):
        for way in (sorted(times) if i % 2 else sorted(times, reverse=True)):
            if paired:
                recorder.gpuflight_flush(5000)  # the writer is not to run beside the other
                (recorder.gpuflight_resume() if way == "recorded" else recorder.gpuflight_pause(0))
            steps, ns, total = decoder.round()
            totals.add(total)
            times[way].append(ns / steps)
    print(json.dumps({"ns_per_step": times, "totals": sorted(totals)}))


main()
