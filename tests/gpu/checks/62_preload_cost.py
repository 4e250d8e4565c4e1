# What the preload costs a program that never uses CUDA: /bin/true, 200 runs each in turns.
# limit_s: 40
import gpu_check as g

with g.Check() as check:
    started = g.start_plain("spawn", [g.program("spawn_cost"), g.library(), "60" if g.quick() else "200"]).wait()
    found = g.json_lines(started.out, "added_ms")
    if started.succeeded(check) and check.expect(found, "no result"):
        one = found[0]
        check.facts.update(one)
        check.expect(one["added_ms"] <= 0.5, f"{one['added_ms']} ms, the goal is 0.5")
        check.expect(one["added_kb"] <= 1024, f"{one['added_kb']} KB, the goal is 1024")
        check.key = (f"/bin/true {one['plain_ms']:.2f} ms and {one['plain_kb']:.0f} KB, preloaded "
                     f"{one['added_ms']:+.2f} ms and {one['added_kb']:+.0f} KB")
        check.markdown = (f"## A program without CUDA\n\n`/bin/true`, {one['runs']} runs each in turns, medians: "
                          f"{one['plain_ms']:.3f} ms plain, {one['preloaded_ms']:.3f} ms preloaded (paired "
                          f"{one['added_ms']:+.3f} ms, quartiles {one['added_ms_q1']:+.3f} to "
                          f"{one['added_ms_q3']:+.3f}); peak memory {one['plain_kb']:.0f} and "
                          f"{one['preloaded_kb']:.0f} KB.")
