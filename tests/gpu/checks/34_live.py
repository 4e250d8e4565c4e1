# The log while the program runs: how long after a kernel's end its line, with its times, is there, while kernels run
# one after the other; then a kernel of 20 s beside 100,000 short ones: kernel_pending tells of it, and all is there at
# the end.
# limit_s: 75
import collections
import json
import time

import gpu_check as g
import timeline_compare as t

GOAL_DELAY_S = 1.0
GOAL_SPIN_PERCENT = 1.0
POLL_S = 0.01
TITLES = {"live_fast": "1 ms each", "live_slow": "20 ms each", "live_slower": "20 ms after 1 ms in one thread"}


class Follower:
    """Reads what is new in the one log of a run, and when."""

    def __init__(self, label):
        self.label, self.file, self.rest, self.t0 = label, None, b"", None
        self.kernels, self.delays, self.pending, self.names = {}, collections.defaultdict(list), [], {}

    def poll(self):
        if self.file is None:
            paths = g.log_paths(self.label)
            if not paths:
                return
            self.file = open(paths[0], "rb")
        text = self.file.read()
        now = time.monotonic_ns()
        lines = (self.rest + text).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self.take(json.loads(line), now)

    def take(self, event, now):
        if event["type"] == "session_start":
            self.t0 = event["t0_monotonic_ns"]
        elif event["type"] == "kernel_event":
            self.names[event["seq"]] = event["name"]
            self.see(event["name"], event["end_ns"], now)
        elif event["type"] == "kernel_time":
            self.see(event["name"], event["end_ns"], now)
        elif event["type"] == "kernel_pending":
            self.pending.append(event)

    def see(self, name, end_ns, now):
        if end_ns is not None:
            self.delays[name].append((now - self.t0 - end_ns) / 1e9)


def delay_facts(check, follower, counts):
    facts = {}
    for name in TITLES:
        delays = follower.delays[name]
        if check.expect_equal(len(delays), counts[name], f"{name}: kernels with times seen while following"):
            facts[name] = {"median_s": round(g.median(delays), 3), "max_s": round(max(delays), 3)}
            check.expect(max(delays) <= GOAL_DELAY_S, f"{name}: in the log up to {max(delays):.2f} s after its end, "
                         f"the goal is {GOAL_DELAY_S}")
    return check.fact("delay_s", facts)


with g.Check() as check:
    load = ["--fast", "1000", "--slow", "75", "--spin-seconds", "7", "--shorts", "10000"] if g.quick() else []
    command = [g.program("live_host"), *load] + (["--simulated"] if g.simulated() else [])
    started = g.start_preloaded("live", command, count=False, limit_s=60,
                                extra={"GPUFLIGHT_TIMING": "all", "GPUFLIGHT_EXIT_TIMEOUT_MS": "10000"})
    follower = Follower("live")
    while started.process.poll() is None and time.monotonic() - started.started < started.limit_s:
        follower.poll()
        time.sleep(POLL_S)
    started.wait()
    follower.poll()
    said = g.json_lines(started.out, "spin_ms")
    if started.succeeded(check) and check.expect(said, "no result") and check.expect(g.log_paths("live"), "no log"):
        said = check.fact("said", said[0])
        delays = delay_facts(check, follower, said["counts"])
        log = t.TimedLog(g.log_paths("live")[0], said["counts"])
        check.expect_equal(log.bad_lines, 0, "lines that are not JSON")
        for failure in t.compare_presence(log, said["counts"]):
            check.expect(False, failure)
        notices = check.fact("notices", [n["message"] for n in log.of("notice_event")])
        end = log.of("session_end")[-1] if log.of("session_end") else {}
        check.expect_equal(g.lost_total(end), 0, "lost")
        untimed = len(log.kernels) - len(t.timed(log.kernels))
        check.fact("untimed", untimed)
        check.fact("late_times", log.late_times)
        check.expect(untimed + log.late_times <= end.get("null_time", 0), f"{untimed} kernels without times and "
                     f"{log.late_times} with late ones, the ledger tells of {end.get('null_time')}")
        check.expect(untimed == 0 or any("GPU times are not recorded" in n for n in notices), f"{untimed} kernels without times, and no "
                     "notice that says why")
        check.expect(said["shorts_done_first"], "the long kernel did not outlast the short ones: nothing was shown")
        spins = [p for p in follower.pending if p["name"] == "live_spin"]
        if check.expect_equal(len(spins), 1, "kernel_pending lines of the long kernel"):
            check.fact("pending", spins[0])
            check.expect(spins[0]["pending_ns"] >= 4.9e9, f"told after {spins[0]['pending_ns'] / 1e9:.1f} s already")
        long_one = t.timed(log.named("live_spin"))
        off = t.off_percent(sum(k.end_ns - k.start_ns for k in long_one) / 1e6, said["spin_ms"])
        check.expect(abs(off) <= GOAL_SPIN_PERCENT, f"the long kernel: {off:+.2f} % against its events")
        shown = ", ".join(f"{TITLES[name]}: at most {d['max_s']} s (median {d['median_s']})"
                          for name, d in delays.items())
        check.key = (f"line after its kernel's end: {shown}; beside {said['spin_ms'] / 1e3:.0f} s of one kernel "
                     f"{said['counts']['live_short']} short ones, {untimed} without times")
        told = f"after {spins[0]['pending_ns'] / 1e9:.1f} s" if spins else "never"
        check.markdown = ("## Live\n\n`live_host`: line in the log after its kernel's end, kernels without a gap: "
                          f"{shown}. A kernel of {said['spin_ms'] / 1e3:.1f} s beside "
                          f"{said['counts']['live_short']} short ones: kernel_pending of it {told}; kernels without "
                          f"times at the end {untimed}, times in a line of their own {log.late_times}.")
