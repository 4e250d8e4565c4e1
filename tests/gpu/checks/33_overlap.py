# Copies beside kernels: `gpuflight report --json` against the program's own events.
# limit_s: 60
import subprocess

import gpu_check as g
import timeline_compare as t

GOAL_PERCENT = 2.0

with g.Check() as check:
    command = [g.program("overlap_host"), "--chunks", "4" if g.quick() else "12"]
    command += ["--simulated", "--megabytes", "4", "--kernel-us", "20000"] if g.simulated() else []
    started = g.start_preloaded("overlap", command, count=False, extra={"GPUFLIGHT_TIMING": "all"}, limit_s=40).wait()
    said = g.json_lines(started.out, "kernels_ms")
    if started.succeeded(check) and check.expect(said, "no result"):
        said = check.fact("events", said[0])
        log = g.read_logs("overlap")
        g.check_sound(check, log, "overlap")
        done = subprocess.run([g.command_line(), "report", "--json", *log.paths], capture_output=True, text=True,
                              timeout=60, env=g.clean_environment())
        check.expect_equal(done.returncode, 0, f"gpuflight report: {done.stderr[-200:]}")
        devices = g.json.loads(done.stdout)["device_times"]
        if check.expect_equal(len(devices), 1, "devices in the report"):
            ours = check.fact("report", devices[0])
            kernels, copies = said["kernels_ms"], said["copies_in_ms"] + said["copies_out_ms"]
            # What is compared, by us and by events, ms.
            rows = {"copy beside kernel": (ours["copy_beside_kernel_ns"] / 1e6, t.in_both(kernels, copies)),
                    "kernels": (ours["kernel_busy_ns"] / 1e6, t.length(t.union_of(kernels))),
                    "copies": (ours["copy_busy_ns"] / 1e6, t.length(t.union_of(copies)))}
            off = check.fact("off_percent", {what: t.off_percent(*pair) for what, pair in rows.items()})
            beside, by_events = rows["copy beside kernel"]
            check.expect(by_events > 0, "the program's copies did not overlap its kernels")
            # The simulated device moves bytes on the host, inside the call, for longer than it says a copy takes.
            for what in ["kernels"] if g.simulated() else rows:
                check.expect(abs(off[what]) <= GOAL_PERCENT, f"{what}: {off[what]:+.2f} % against events")
            made = [(e["kind"], e["source"], e["destination"]) for e in log.of("memcpy_event")
                    if e["bytes"] == said["copy_bytes"]]
            for wanted in (("htod", "pinned", "device"), ("dtoh", "device", "pinned")):
                check.expect_equal(made.count(wanted), said["chunks"], f"copies {' '.join(wanted)}")
            check.key = (f"copies beside kernels {beside:.2f} ms, by events {by_events:.2f} "
                         f"({off['copy beside kernel']:+.2f} %)")
            check.markdown = "\n".join(
                ["## Overlap of copies and kernels", "", f"`overlap_host`, {said['chunks']} chunks of "
                 f"{said['copy_bytes'] >> 20} MB in, through a kernel and out, ms.", "",
                 "| | report | own events | off |", "| --- | --- | --- | --- |"] +
                [f"| {what} | {a:.3f} | {b:.3f} | {off[what]:+.2f} % |" for what, (a, b) in rows.items()])
