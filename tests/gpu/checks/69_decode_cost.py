# What a decode loop like an inference server's (small kernels in graphs, 32 requests) costs more where launches are seen
# by the driver's entry points.
# limit_s: 170
import importlib.util
import os
import sys

import gpu_check as g

GOAL_PERCENT = 1


def start(label, interposed, *arguments):
    script = os.path.join(g.tree(), "tests", "bench", "gpu", "decode_loop.py")
    command = [sys.executable, script, *arguments]
    return (g.start_interposed(label, command, count=False, limit_s=100) if interposed else
            g.start_plain(label, command, limit_s=100)).wait()


def drop_logs(label):
    for path in g.log_paths(label):
        os.unlink(path)


with g.Check() as check:
    g.hooks()
    if g.simulated() or not importlib.util.find_spec("torch"):
        raise g.Skip("PyTorch on a GPU is needed")
    rounds = "6" if g.quick() else "40"
    pairs = "6" if g.quick() else "160"  # of 38 ms each, and single ones differ by a percent from one to the next
    started = start("paired", True, pairs, "--paired")
    found = g.json_lines(started.out, "ns_per_step")
    log = g.read_logs("paired")
    check.expect_equal({s["capture"] for s in log.of("session_start")}, {"interpose"}, "source of launches")
    replays = len(log.graph_launches())
    drop_logs("paired")
    if started.succeeded(check) and check.expect(found, "paired: no result"):
        times = found[0]["ns_per_step"]
        percents = [100 * (a / b - 1) for a, b in zip(times["recorded"], times["paused"])]
        percent = check.fact("percent", g.median(percents))
        check.expect(replays > 500, f"only {replays} replays in the log")
        quartiles = g.percentile(percents, 0.25), g.percentile(percents, 0.75)
        # Whole processes beside that, in turns: the least of each, as others on the machine only add.
        whole = {"plain": [], "interposed": []}
        totals = {way: set() for way in whole}
        for i in range(1 if g.quick() else 3):
            for way in whole:
                label = f"{way}_{i}"
                one = start(label, way == "interposed", rounds)
                told = g.json_lines(one.out, "ns_per_step")
                drop_logs(label)
                if one.succeeded(check) and check.expect(told, f"{label}: no result"):
                    whole[way].append(min(told[0]["ns_per_step"]["plain"]))
                    totals[way].update(told[0]["totals"])
        check.expect_equal(totals["interposed"], totals["plain"], "tokens")
        check.fact("ns_per_step_least", whole)
        check.expect(percent <= GOAL_PERCENT, f"{percent:+.2f} %, the goal is {GOAL_PERCENT}")
        processes = ""
        if all(whole.values()):
            least = {way: min(ns) for way, ns in whole.items()}
            processes = (f" Processes in turns, the least: {least['plain'] / 1000:.1f} us plain, "
                         f"{least['interposed'] / 1000:.1f} interposed "
                         f"({100 * (least['interposed'] / least['plain'] - 1):+.2f} %).")
        check.key = f"{percent:+.2f} % a step of {g.median(times['paused']) / 1000:.0f} us"
        check.markdown = "\n".join([
            "## A decode loop", "",
            f"`decode_loop.py {pairs} --paired`, 32 requests, a step of {g.median(times['paused']) / 1000:.1f} us; recording "
            f"and paused in turns in one process: {percent:+.2f} % (quartiles {quartiles[0]:+.2f} to {quartiles[1]:+.2f}), "
            f"{replays} replays recorded." + processes])
