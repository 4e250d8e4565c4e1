# kill -9 at a random moment, 20 rounds of 4 to 64 launching threads: what the program had counted as returned is in the
# log or is recovered.
# limit_s: 120
# parallel: 1
import glob
import json
import os
import random
import signal
import struct
import subprocess
import time

import gpu_check as g

ROUNDS, AT_ONCE = 20, 4


def counted(path):
    data = open(path, "rb").read() if os.path.exists(path) else b""
    return [struct.unpack_from("<Q", data, at)[0] for at in range(0, len(data), 64)]


def kernel_seqs(path):
    """Of whole lines: the last one may be torn."""
    with open(path, "rb") as f:
        events = [json.loads(line) for line in f.read().split(b"\n")[:-1] if line.startswith(b'{"type":"kernel_event"')]
    return [event["seq"] for event in events]


def start(number, choose):
    label = f"kill{number}"
    threads = choose.randint(4, 64)
    counters = g.work(label + ".counters")
    command = [g.program("kill_host"), counters, "--threads", str(threads), "--rate", str(choose.choice([5000, 20000]))]
    if g.simulated():
        command.append("--simulated")
    return label, threads, counters, g.start_preloaded(label, command, count=False), choose.random() / 2


def finish(check, label, threads, counters, run, wait_s):
    deadline = time.monotonic() + 30
    while sum(counted(counters)) == 0 and run.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(wait_s)
    run.process.send_signal(signal.SIGKILL)
    code = run.wait().code
    if not check.expect_equal(code, -signal.SIGKILL, f"{label}: ended by itself: {run.err[-200:]}"):
        return None
    returned = sum(counted(counters))
    flights = glob.glob(g.work(label + ".*.flight"))
    if not check.expect_equal(len(flights), 1, f"{label}: flight files"):
        return None
    done = subprocess.run([g.command_line(), "recover", "--json", flights[0]], capture_output=True, text=True,
                          env=g.clean_environment())
    if not check.expect_equal(done.returncode, 4, f"{label}: recover: {done.stderr[-200:]}"):
        return None
    said = json.loads(done.stdout)
    check.expect_equal(said["verdict"], "stopped", f"{label}: verdict")
    causes = dict(said["ledger"]["lost_by_cause"])
    unfinished = causes.pop("unfinished", 0)
    check.expect(unfinished <= threads, f"{label}: {unfinished} records torn by {threads} threads")
    check.expect_equal(sum(causes.values()), 0, f"{label}: lost")
    check.expect(said["ledger"]["balanced"], f"{label}: the ledger does not balance")
    stem = flights[0][:-len(".flight")]
    seqs = [seq for path in (stem + ".ndjson", stem + ".recovered.ndjson") if os.path.exists(path)
            for seq in kernel_seqs(path)]
    check.expect_equal(len(seqs), len(set(seqs)), f"{label}: events without their doubles")
    check.expect(returned <= len(seqs) <= returned + threads,
                 f"{label}: {returned} launches returned in {threads} threads, {len(seqs)} events known")
    return returned, said["ledger"]["recovered"]


with g.Check() as check:
    choose = random.Random(check.fact("seed", int(time.time())))
    g.command_line()
    total = recovered = rounds = 0
    for first in range(0, ROUNDS, AT_ONCE):
        for one in [start(number, choose) for number in range(first, first + AT_ONCE)]:
            found = finish(check, *one)
            if found:
                rounds, total, recovered = rounds + 1, total + found[0], recovered + found[1]
    check.expect_equal(rounds, ROUNDS, "rounds done")
    check.fact("launches", total)
    check.fact("recovered", recovered)
    check.key = f"{rounds} kills of 4 to 64 threads: {total} launches returned, {recovered} recovered, 0 lost"
    check.markdown = "\n".join(["## kill -9", "", f"{rounds} rounds, 4 to 64 launching threads, killed at a random moment: "
                               f"{total} launches had returned, all are known; {recovered} of them from the flight file."])
