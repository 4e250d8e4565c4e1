# compute-sanitizer on a program that carries the recorder: it ends as it does without us, and what we could not do is
# said in our log.
# limit_s: 90
# parallel: 1
import glob
import os
import shutil

import gpu_check as g

with g.Check() as check:
    tool = shutil.which("compute-sanitizer") or next(iter(glob.glob("/usr/local/cuda*/bin/compute-sanitizer")), None)
    if not tool:
        raise g.Skip("compute-sanitizer is not installed")
    found = {}
    for mode in ("clean", "illegal"):
        command = [tool, "--tool", "memcheck", g.program("incident_host"), mode]
        bare = g.start_plain(mode + ".bare", command, limit_s=40)
        recorded = g.start_preloaded(mode, command, count=False, limit_s=40)
        bare.wait(), recorded.wait()
        check.expect_equal(recorded.code, bare.code, f"{mode}: exit code")

        def told(text):  # process ids and addresses differ from run to run
            return [line for line in text.splitlines() if "ERROR SUMMARY" in line or not line.startswith("=")]
        check.expect_equal(told(recorded.out), told(bare.out), f"{mode}: output")
        check.expect_equal(recorded.err, bare.err, f"{mode}: stderr")
        log = g.read_logs(mode)
        ours = [e for e in log.of("session_start") if os.path.basename(e.get("program") or "") == "incident_host"]
        notices = [n["message"] for n in log.of("notice_event")]
        launches = len(log.kernels())
        found[mode] = check.fact(mode, {"logs": len(log.paths), "launches": launches, "notices": notices,
                                        "exit": recorded.code})
        check.expect(launches > 300 or any("CUPTI" in n for n in notices) or not ours,
                     f"{mode}: {launches} launches recorded, and no notice says why: {notices}")
    one = found["clean"]
    check.key = f"same output and exit; {one['launches']} launches recorded; said: {'; '.join(one['notices'])[:160] or 'nothing'}"
