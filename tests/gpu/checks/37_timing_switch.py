# GPU times switched off and on from outside while kernels run: every launch is there once, with times but for those
# asked for meanwhile; and sampled times: each tenth of a configuration.
# limit_s: 30
import subprocess
import time

import gpu_check as g

LOAD = ["--fast", "4000", "--slow", "1", "--spin-seconds", "1", "--shorts", "1000"]


def executed(label):
    return [e for e in g.read_logs(label).kernels() if not g.is_captured(e)]


with g.Check() as check:
    command = [g.program("live_host"), *LOAD] + (["--simulated"] if g.simulated() else [])
    host = g.start_preloaded("switched", command, count=False, extra={"GPUFLIGHT_TIMING": "all"})
    switched = []
    for wanted, at_s in (("off", 2.0), ("on", 3.5)):
        time.sleep(max(0, at_s - (time.monotonic() - host.started)))
        done = subprocess.run([g.command_line(), "timing", wanted, str(host.process.pid)], capture_output=True, text=True)
        check.expect_equal(done.returncode, 0, f"gpuflight timing {wanted}: {done.stderr}")
        switched.append(time.monotonic())
    host.wait()
    said = g.json_lines(host.out, "spin_ms")
    if host.succeeded(check) and check.expect(said, "no result"):
        log = g.read_logs("switched")
        kernels = executed("switched")
        check.expect_equal(len(kernels), sum(said[0]["counts"].values()), "kernels in the log")
        check.expect_equal(sum(1 for e in kernels if e.get("unlaunched")), 0, "kernels without a launch")
        t0 = log.of("session_start")[0]["t0_monotonic_ns"]
        notices = {n["code"]: n["time_ns"] for n in log.of("notice_event")}
        off, on = notices.get("timing_off", 0), notices.get("timing_on", 0)
        untimed = [e for e in kernels if e["end_ns"] is None]
        slack = 200_000_000  # the notice is written a little after the switch
        check.expect(untimed and all(off - slack < e["launch_ns"] < on + slack for e in untimed),
                     "kernels without times that were launched while times were on")
        check.expect(sum(1 for e in kernels if off + slack < e["launch_ns"] < on - slack and e["end_ns"]) == 0,
                     "kernels with times that were launched while they were off")
        end = log.of("session_end")[-1]
        check.expect_equal((g.lost_total(end), end["null_time"]), (0, 0), "lost, and without times")
        check.fact("notices", [n["message"] for n in log.of("notice_event")])
        sampled = g.start_preloaded("sampled", command, count=False, extra={"GPUFLIGHT_TIMING": "sample:10"}).wait()
        if sampled.succeeded(check):
            fast = [e for e in executed("sampled") if e["name"] == "live_fast"]
            timed = [i for i, e in enumerate(fast) if e["end_ns"] is not None]
            check.expect_equal(timed, list(range(0, len(fast), 10)), "sampled ones")
            end = g.read_logs("sampled").of("session_end")[-1]
            check.expect_equal((g.lost_total(end), end["null_time"], end["unlaunched"]), (0, 0, 0), "lost, null, unlaunched")
        check.key = (f"{len(kernels)} kernels, {len(untimed)} of them without times while switched off for "
                     f"{(on - off) / 1e9:.1f} s; sampled {len(timed)} of {len(fast)}")
