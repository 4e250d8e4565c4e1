# Thousands of random configurations, and families in which one limit alone binds: the log against the driver's answers.
# limit_s: 120
# parallel: 1
import gpu_check as g
import occupancy_compare

with g.Check() as check:
    count = 400 if g.quick() else 3200
    command = [g.program("occupancy_sweep"), "--count", str(count), "--families", "--launch-carveout", "120"]
    started = g.start_preloaded("sweep", command, limit_s=110).wait()
    started.succeeded(check)
    lines = g.json_lines(started.out)
    total = next((line for line in lines if "launches" in line), None)
    if check.expect(total is not None, "the sweep did not reach its end"):
        log = g.read_logs("sweep")
        g.check_sound(check, log, "sweep")
        g.check_counts(check, log, g.read_counts("sweep"), "sweep")
        accepted = [line for line in lines if line.get("status") == 0 and "regs" in line]
        events = [e for e in log.kernels() if not g.is_failed(e)]
        failures, facts = occupancy_compare.compare(accepted, events, total["sms"], total["max_warps_per_sm"])
        for failure in failures:
            check.expect(False, failure)
        facts["refused"] = total["launches"] - len(accepted)
        facts["occupancy_mismatch"] = sum(e.get("occupancy_mismatch", 0) for e in log.of("session_end"))
        check.facts.update(facts)
        check.fact("schema", g.validate(check, log, "sweep"))
        enough = 300 if g.quick() else 3000
        check.expect(facts["configurations"] >= enough, f"only {facts['configurations']} different configurations")
        alone = ", ".join(f"{name} {t['named_alone']}/{t['launches']}" for name, t in sorted(facts["families"].items()))
        check.key = (f"max_active_blocks as the driver's {facts['max_active_blocks_equal']}/{facts['compared']}, every "
                     f"field {facts['equal']}/{facts['compared']} ({facts['configurations']} configurations); header "
                     f"and driver differ in {facts['header_differs_from_driver']}, of these without barriers "
                     f"{facts['header_differs_without_barriers']}; alone: {alone}")
