# compute-sanitizer on a program that carries the recorder: it ends as it does without us, and what we could not do is
# said in our log.
# limit_s: 90
# parallel: 1
import os

import gpu_check as g

with g.Check() as check:
    if not g.nvidia_tool("compute-sanitizer"):
        raise g.Skip("compute-sanitizer is not installed")
    found = {}
    for mode in ("clean", "illegal"):
        recorded = g.check_sanitized(check, mode, mode, g.start_preloaded)
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
