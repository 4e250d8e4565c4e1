# Nsight Compute and compute-sanitizer on programs whose launches we see by the driver's entry points: both sides are
# complete. (torch.profiler: check `interpose`.)
# limit_s: 150
# parallel: 1
import os

import gpu_check as g
import ncu_compare


def logs_of(label, program):
    """Launches in the logs of that program alone: the tool itself carries the recorder too."""
    log = g.read_logs(label)
    starts = [e for e in log.of("session_start") if os.path.basename(e.get("program") or "") == program]
    return log, starts


def check_sanitizer(check):
    if not g.nvidia_tool("compute-sanitizer"):
        return "compute-sanitizer is not installed"
    said = []
    for mode in ("clean", "illegal"):
        recorded = g.check_sanitized(check, "san_" + mode, mode, g.start_interposed)
        log, starts = logs_of("san_" + mode, "incident_host")
        launches = len(log.kernels())
        check.expect(len(starts) == 1 and starts[0]["capture"] == "interpose",
                     f"{mode}: sources of launches: {[s['capture'] for s in starts]}")
        check.expect(launches > 300, f"{mode}: {launches} launches recorded")
        said.append(check.fact("sanitizer_" + mode, f"{mode}: {launches} launches recorded, exit {recorded.code}"))
    return "compute-sanitizer: " + ", ".join(said)


def check_ncu(check):
    ncu = g.nvidia_tool("ncu")
    if not ncu:
        return "ncu is not installed"
    sweep = [g.program("occupancy_sweep"), "--family", "barriers", "--count", "20", "--seed", "5", "--no-clusters"]
    command = [ncu, "--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none", "--kernel-name-base",
               "mangled", "--target-processes", "all", "--metrics", ",".join(ncu_compare.ROWS.values()), *sweep]
    bare = g.start_plain("ncu_bare", command, limit_s=60).wait()
    started = g.start_interposed("ncu_ours", command, count=False, limit_s=60).wait()
    check.expect_equal(started.code, bare.code, "ncu: exit code")
    theirs, alone = ncu_compare.read_raw_page(started.out), ncu_compare.read_raw_page(bare.out)
    check.expect_equal(len(theirs), len(alone), "kernels that ncu profiled with us and without")
    log, starts = logs_of("ncu_ours", "occupancy_sweep")
    check.expect(starts and starts[0]["capture"] == "interpose", f"ncu: sources: {[s['capture'] for s in starts]}")
    events = [e for e in log.kernels() if not g.is_failed(e)]
    check.expect(len(theirs) >= 20, f"ncu profiled {len(theirs)} kernels: {(started.out + started.err)[-300:]}")
    check.expect_equal(len(events), len(theirs), "launches recorded against kernels that ncu profiled")
    return check.fact("ncu", f"ncu profiled {len(theirs)} of {len(alone)} kernels, {len(events)} launches recorded")


with g.Check() as check:
    g.hooks()
    if g.simulated():
        raise g.Skip("the tools need a GPU")
    said = [check_ncu(check), check_sanitizer(check)]
    check.key = "; ".join(said)
    check.markdown = "## Tools beside launches seen without CUPTI\n\n" + "; ".join(said) + "."
