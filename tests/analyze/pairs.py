#!/usr/bin/env python3
"""For each rule of `gpuflight analyze` a program that shows what it finds and one that does the same well.

    tests/analyze/pairs.py FOLDER     writes RULE_bad.ndjson, RULE_good.ndjson (of several logs RULE_bad.r0 ...)
"""
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from timeline import SM_COUNT, Timeline  # noqa: E402

MB = 1 << 20
FULL = 8 * SM_COUNT * 32  # 32 whole waves of a kernel with 8 blocks per SM


def begin(**options):
    t = Timeline(**options)
    s = t.stream()
    return t, s, t.kernel("step")


def cuda_memcpy_async(bad):
    t, s, k = begin()
    for _ in range(10):
        t.launch(k, FULL, s, 2_000_000)
    for _ in range(6):
        t.copy("htod", 8 * MB, s, memory="pageable" if bad else "pinned")
    t.sync()
    return t


def cuda_memcpy_sync(bad):
    t, s, k = begin()
    copies = t.stream()
    for _ in range(12):
        t.launch(k, FULL, s, 1_000_000)
        t.copy("dtoh", 8 * MB, s if bad else copies, sync=bad)
    t.sync()
    return t


def cuda_memset_sync(bad):
    t, s, k = begin()
    for _ in range(4):
        t.launch(k, FULL, s, 1_000_000)
        t.fill(64 * MB, s, memory="managed", sync=bad)
    t.sync()
    return t


def cuda_api_sync(bad):
    t, s, k = begin()
    for i in range(8):  # at no regular distance: not a loop
        for _ in range(1 + i * i % 5):
            t.launch(k, FULL, s, 300_000)
        if bad:
            t.sync()
            t.wait(100_000)
    t.sync()
    return t


def small_copies(bad):
    t, s, _ = begin()
    if bad:
        for _ in range(400):
            t.copy("htod", 4096, s)
    else:
        t.copy("htod", 400 * 4096, s)
    t.sync()
    return t


def sync_in_loop(bad):
    t, s, k = begin()
    for _ in range(100):
        t.launch(k, FULL, s, 50_000)
        t.launch(k, FULL, s, 50_000)
        if bad:
            t.sync(s)
    t.sync()
    return t


def alloc_in_loop(bad):
    t, s, k = begin()
    if not bad:
        t.memory("alloc", 8 * MB)
    for _ in range(40):
        if bad:
            t.memory("alloc", 8 * MB, call_ns=80_000)
        t.launch(k, FULL, s, 200_000)
        if bad:
            t.memory("free", 8 * MB, call_ns=120_000, waits=True)
    t.sync()
    if not bad:
        t.memory("free", 8 * MB)
    return t


def gpu_gaps(bad):
    t, s, k = begin()
    for _ in range(20):
        t.launch(k, FULL, s, 30_000_000)
    t.wait(650_000_000 + 600_000_000 * bad)
    if not bad:
        t.now -= 650_000_000
    for _ in range(40):
        t.launch(k, FULL, s, 30_000_000)
    t.sync()
    return t


def gpu_time_util(bad):
    t, s, k = begin()
    for _ in range(40):
        t.launch(k, FULL, s, 1_000_000)
    t.now = max(t.ends.values())
    for _ in range(16):  # hardly anything for a while
        t.launch(k, FULL, s, 200_000)
        if bad:
            t.wait(1_000_000)
    for _ in range(40):
        t.launch(k, FULL, s, 1_000_000)
    t.sync()
    return t


def idle_time(bad):
    t, s, k = begin()
    for _ in range(60):
        t.launch(k, FULL, s, 200_000)
        if bad:
            t.wait(600_000)
    t.sync()
    return t


def default_stream_barrier(bad):
    t = Timeline()
    k = t.kernel("step", blocks_per_sm=8)
    small = t.kernel("note")
    zero = t.default_stream()
    one, two = t.stream(flags=0), t.stream(flags=0)
    three = t.stream(flags=1)
    for _ in range(30):
        t.launch(k, 8 * SM_COUNT, one, 200_000, beside=True)
        t.launch(small, 8 * SM_COUNT, zero if bad else three, 20_000, beside=True)
        t.launch(k, 8 * SM_COUNT, two, 200_000, beside=True)
    t.sync()
    return t


def stream_never_concurrent(bad):
    t = Timeline()
    k = t.kernel("step")
    streams = [t.stream() for _ in range(4)]
    for i in range(60):
        t.launch(k, FULL if bad else SM_COUNT, streams[i % 4], 300_000, beside=not bad)
    t.sync()
    return t


def priority_inversion(bad):
    t = Timeline()
    k = t.kernel("background")
    urgent_kernel = t.kernel("urgent")
    low, urgent = t.stream(priority=0), t.stream(priority=-5)
    for _ in range(12):
        for _ in range(6):
            t.launch(k, FULL, low, 200_000)
        last = t.ends[low]  # the urgent one waits for an event of the other stream
        t.launch(urgent_kernel, SM_COUNT * 8, urgent, 20_000, beside=True, not_before=last + 2_000 if bad else 0)
        t.wait(1_150_000)
    t.sync()
    return t


def missed_overlap(bad):
    t = Timeline()
    k = t.kernel("compute")
    streams = [t.stream() for _ in range(1 if bad else 4)]
    for i in range(24):
        s = streams[i % len(streams)]
        t.copy("htod", 16 * MB, s)
        t.launch(k, FULL, s, 700_000)
        t.copy("dtoh", 16 * MB, s)
    t.sync()
    return t


def copy_direction_wait(bad):
    t = Timeline()
    t.kernel("none")
    one = t.stream()
    two = one if bad else t.stream()
    for _ in range(30):
        t.copy("htod", 4 * MB, one)
        t.copy("dtoh", 4 * MB, two)
    t.sync()
    return t


def launch_bound(bad):
    t, s, _ = begin()
    dice = random.Random(7)
    kernels = [t.kernel(f"op{i}", block=32 * (1 + i)) for i in range(12)]
    for _ in range(3000):
        i = dice.randrange(12)
        t.launch(kernels[i], 8 * SM_COUNT * (1 + dice.randrange(4)), s, 1_500 if bad else 9_000, call_ns=6_000)
    t.sync()
    return t


def queue_full(bad):
    t, s, k = begin()
    for i in range(2400):
        full = bad and i >= 1100
        t.launch(k, FULL, s, 40_000, call_ns=40_500 if full else 3_000)
        if not bad and i % 600 == 599:
            t.now = max(t.ends.values()) - 10_000_000
    t.sync()
    return t


def graph_candidate(bad):
    t, s, _ = begin()
    kernels = [t.kernel(f"layer{i}", block=32 * (1 + i)) for i in range(20)]
    for _ in range(60):
        if bad:
            for i, k in enumerate(kernels):
                t.launch(k, 8 * SM_COUNT * (1 + i % 3), s, 3_000, call_ns=5_500)
        else:
            t.graph([(k, 8 * SM_COUNT * (1 + i % 3), 3_000) for i, k in enumerate(kernels)], s)
    t.sync()
    return t


def tiny_kernels(bad):
    t, s, k = begin()
    other = t.kernel("add")
    dice = random.Random(3)
    for _ in range(1500 if bad else 150):
        t.launch(k if dice.random() < 0.5 else other, 8 * SM_COUNT, s, 2_000 if bad else 20_000, call_ns=5_000)
    t.sync()
    return t


def slow_burst(bad):
    t, s, k = begin()
    for i in range(400):
        t.launch(k, FULL, s, 180_000 if bad and 200 <= i < 220 else 40_000 + i % 7 * 300)
    t.sync()
    return t


def memory_growth(bad):
    t, s, k = begin()
    for i in range(60):
        t.memory("alloc", 4 * MB, call_ns=5_000)
        t.launch(k, FULL, s, 2_000_000)
        t.wait(2_000_000)
        if not bad:
            t.memory("free", 4 * MB, call_ns=5_000)
    t.sync()
    return t


def memory_peak(bad):
    t, s, k = begin(global_bytes=16_000_000_000)
    for _ in range(5):
        t.memory("alloc", 3_000_000_000 if bad else 1_000_000_000)
    for _ in range(20):
        t.launch(k, FULL, s, 1_000_000)
    t.sync()
    for _ in range(5):
        t.memory("free", 3_000_000_000 if bad else 1_000_000_000)
    return t


def low_occupancy(bad):
    t, s, _ = begin()
    k = t.kernel("wide", block=128, occupancy=0.25 if bad else 0.75, limiter="registers", regs=128)
    for _ in range(50):
        t.launch(k, FULL, s, 400_000)
    t.sync()
    return t


def spills(bad):
    t, s, _ = begin()
    k = t.kernel("spilling", regs=32, local=480 if bad else 0)
    for _ in range(50):
        t.launch(k, FULL, s, 400_000)
    t.sync()
    return t


def partial_wave(bad):
    t, s, k = begin()
    for _ in range(50):
        t.launch(k, 8 * SM_COUNT + 8 if bad else 8 * SM_COUNT, s, 400_000)
    t.sync()
    return t


def imbalance(bad):
    """Two ranks with collectives; rank 1 comes later to each."""
    ranks = []
    for rank in range(2):
        t, s, k = begin(pid=5000 + rank, rank={"RANK": str(rank), "WORLD_SIZE": "2"}, t0_ns=rank * 40_000_000,
                        start_ns=50_000_000 - rank * 40_000_000)
        reduce = t.kernel("ncclDevKernel_AllReduce", block=512)
        for i in range(40):
            work = 1_000_000 + (400_000 if bad and rank == 1 else 0)
            t.launch(k, FULL, s, work)
            step = 1_400_000 if bad else 1_000_000
            t.launch(reduce, 8 * SM_COUNT, s, step + 100_000 - work)
        t.sync()
        ranks.append(t)
    return ranks


PAIRS = {function.__name__: function for function in (
    cuda_memcpy_async, cuda_memcpy_sync, cuda_memset_sync, small_copies, cuda_api_sync, sync_in_loop, alloc_in_loop,
    gpu_gaps,
    gpu_time_util, idle_time, default_stream_barrier, stream_never_concurrent, priority_inversion, missed_overlap,
    copy_direction_wait, launch_bound, queue_full, graph_candidate, tiny_kernels, memory_growth, memory_peak,
    low_occupancy,
    spills, partial_wave, slow_burst, imbalance)}


def write(rule, bad, folder):
    """The paths of its logs."""
    made = PAIRS[rule](bad)
    word = "bad" if bad else "good"
    if isinstance(made, Timeline):
        return [made.write(pathlib.Path(folder) / f"{rule}_{word}.ndjson")]
    return [t.write(pathlib.Path(folder) / f"{rule}_{word}.r{i}.ndjson") for i, t in enumerate(made)]


if __name__ == "__main__":
    for rule in PAIRS:
        for bad in (True, False):
            write(rule, bad, sys.argv[1])
