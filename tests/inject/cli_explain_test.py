"""explain and occupancy: the article's story out of a recorded log, findings, advice, what-ifs, the calculator."""
import json
import subprocess
import unittest

from cli_support import BUILD, SOURCE, TOOL, FolderTest, environment, tool, write_log

SIM = BUILD / "sim"
PLAN = SOURCE / "tests" / "plans" / "article_sm86.json"


def kernel_lines(log, change):
    """Rewrites a log: `change(line, number)` for each kernel_event, in place."""
    number, out = 0, []
    for text in log.read_text().splitlines():
        line = json.loads(text)
        if line["type"] == "kernel_event":
            change(line, number)
            number += 1
        out.append(json.dumps(line, separators=(",", ":")))
    log.write_text("\n".join(out) + "\n")
    return log


class ExplainTest(FolderTest):
    def answer(self, verb, *words):
        done = tool(verb, "--json", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def explain(self, *words):
        return self.answer("explain", *words)

    def advice(self, kernel, change):
        return [a for a in kernel["advice"] if a["change"] == change]

    def findings(self, kernel):
        return {f["finding"]: f for f in kernel["findings"]}


@unittest.skipUnless((SIM / "gpuflight-play").exists(), "the simulated device is not built")
class Article(ExplainTest):
    """The two block reductions, recorded by the real library on the simulated sm_86."""

    def record(self):
        env = environment(LD_LIBRARY_PATH=SIM, GPUFLIGHT_CUPTI=SIM / "libcupti.so.13", GPUFLIGHT_SIM_PLAN=PLAN)
        done = tool("run", "--timing", "all", "--log", self.folder / "article.ndjson", "--", SIM / "gpuflight-play", PLAN,
                    env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / "article.ndjson"

    def test_the_story_comes_out_by_itself(self):
        log = self.record()
        kernels = {k["name"].split("(")[0]: k for k in self.explain(log)["kernels"]}
        naive, optimized = kernels["block_reduce_naive"], kernels["block_reduce_optimized"]
        # Shared memory limits the naive one at 5 of 6 blocks ...
        self.assertEqual((naive["now"]["max_active_blocks"], naive["now"]["occupancy"]), (5, 0.833333))
        self.assertEqual(naive["now"]["limiting_resources"], ["shared_mem"])
        self.assertEqual(naive["now"]["limit_blocks"],
                         {"warps": 6, "blocks": 16, "registers": 16, "shared_mem": 5, "barriers": None, "cluster": None})
        (bytes_less,) = self.advice(naive, "shared_bytes")
        self.assertEqual((bytes_less["from"], bytes_less["to"], bytes_less["gains"]), (16384, 16000, True))
        # ... 1 KB of dynamic memory frees it, and then warps limit.
        (dynamic,) = self.advice(naive, "static_to_dynamic")
        self.assertEqual((dynamic["to"], dynamic["gains"]), (1024, True))
        self.assertEqual((dynamic["after"]["max_active_blocks"], dynamic["after"]["occupancy"]), (6, 1.0))
        self.assertEqual(dynamic["after"]["limiting_resources"], ["warps"])
        self.assertEqual(naive["may_not_help"], "high_occupancy")
        self.assertEqual(self.advice(naive, "registers"), [])
        self.assertEqual((optimized["now"]["occupancy"], optimized["now"]["limiting_resources"]), (1.0, ["warps"]))
        self.assertEqual(optimized["launch"]["dyn_shared_bytes"], 1024)
        self.assertEqual(optimized["advice"], [])
        self.assertIn("tail_effect", self.findings(optimized))

    def test_in_words(self):
        text = " ".join(tool("explain", self.record()).stdout.split())
        for words in ("1. block_reduce_naive 60.0% of GPU time, 1 launch, 180 us each",
                      "Theoretical occupancy 83.3%, limited by shared memory: 5 blocks of 8 warps on an SM, 40 of 48 warps",
                      "Block Limit Shared Mem 5 < Block Limit Warps 6",
                      "16,000 B of shared memory a block, not 16,384 (384 B less): 6 blocks, occupancy 83.3% -> 100.0%",
                      "the 16,384 B of static shared memory as dynamic, sized at the launch: 1,024 B are 4 for each "
                      "thread: 6 blocks, occupancy 83.3% -> 100.0%, then limited by warps",
                      "2. block_reduce_optimized", "Theoretical occupancy 100.0%, limited by warps: 6 blocks",
                      "would save at most 2.1% of its time"):
            self.assertIn(words, text)

    def test_on_other_boards(self):
        log = self.record()
        facts = self.answer("occupancy", log, "naive", "--arch", "sm_80,sm_86")
        (kernel,) = facts["kernels"]
        self.assertEqual(kernel["recorded"]["occupancy"], 0.833333)
        self.assertEqual([(b["arch"], b["now"]["max_active_blocks"], b["now"]["occupancy"]) for b in kernel["boards"]],
                         [("sm_80", 8, 1.0), ("sm_86", 5, 0.833333)])
        self.assertIn("registers_as_recorded", facts["assumed"])
        text = tool("occupancy", log, "--kernel", "naive", "--arch", "sm_80,sm_100").stdout
        self.assertIn("  recorded      83.3%       5  40 of 48  shared memory", text)
        self.assertIn("  sm_80        100.0%       8  64 of 64  warps", text)
        self.assertIn("assumed: registers and static shared memory as compiled for the recorded board", text)


class Explain(ExplainTest):
    def one(self, change, *options):
        """The only kernel of a log of 100 launches whose lines `change` has rewritten."""
        self.log = kernel_lines(write_log(self.folder / "a.ndjson", "--events", 100, "--kernels", 1, *options), change)
        (kernel,) = self.explain(self.log)["kernels"]
        return kernel

    def timed(self, line, duration, call):
        line.update(start_ns=line["launch_ns"] + call, end_ns=line["launch_ns"] + call + duration, duration_ns=duration,
                    call_ns=call, queue_ns=call)

    def test_tail(self):
        # 410 blocks at once: 820 are two whole waves, 615 one and a half.
        def change(line, number):
            line["grid"] = "(615,1,1)" if number < 50 else "(820,1,1)"
            self.timed(line, 10_000, 1_000)
        tail = self.findings(self.one(change))["tail_effect"]
        self.assertEqual(tail["launches"], 50)
        self.assertAlmostEqual(tail["value"], 0.25)
        self.assertAlmostEqual(tail["bound_share"], 0.125)
        self.assertAlmostEqual(tail["bound_ns"], 50 * 2_500)
        self.assertEqual(set(self.findings(self.one(lambda line, _: line.update(grid="(820,1,1)")))), set())

    def test_small_grid_makes_occupancy_idle(self):
        kernel = self.one(lambda line, _: line.update(grid="(41,1,1)"))
        small = self.findings(kernel)["small_grid"]
        self.assertEqual((small["launches"], small["bound_share"], small["bound_ns"]), (100, 0.5, None))
        self.assertEqual(kernel["may_not_help"], "grid_fits")
        self.assertEqual(kernel["grids"]["resident"], 100)

    def test_partial_warp_and_local_memory(self):
        def change(line, _):
            line.update(block="(250,1,1)", local_bytes_per_thread=96)
        found = self.findings(self.one(change))
        self.assertAlmostEqual(found["partial_warp"]["value"], 6 / 256)
        self.assertEqual(found["local_memory"]["value"], 96)
        text = tool("explain", self.log).stdout
        self.assertIn("a block of 250 threads does not fill its last warp", text)
        self.assertIn("96 B of local memory a thread", text)

    def test_launch_bound(self):
        found = self.findings(self.one(lambda line, _: self.timed(line, 2_000, 5_000)))
        self.assertEqual((found["launch_bound"]["launches"], found["launch_bound"]["bound_ns"]), (100, 300_000))
        long = self.findings(self.one(lambda line, _: self.timed(line, 9_000, 5_000)))
        self.assertNotIn("launch_bound", long)
        def behind_others(line, _):
            self.timed(line, 2_000, 5_000)
            line["start_ns"] += 500_000
            line["end_ns"] += 500_000
        self.assertNotIn("launch_bound", self.findings(self.one(behind_others)))

    def test_low_occupancy_by_registers(self):
        def change(line, _):
            line.update(num_regs=128, static_shared_bytes=0, occupancy=0.333333, max_active_blocks=2, reg_occupancy=0.333333,
                        limiting_resource="registers", limiting_resources=["registers"])
            line["limit_blocks"].update(registers=2, shared_mem=100)
        kernel = self.one(change)
        self.assertEqual(self.findings(kernel)["low_occupancy"]["value"], 1 / 3)
        (registers,) = self.advice(kernel, "registers")
        self.assertEqual((registers["from"], registers["to"], registers["min_blocks"]), (128, 80, 3))
        self.assertEqual(registers["after"]["occupancy"], 0.5)
        self.assertIsNone(kernel["may_not_help"])
        text = tool("explain", self.log).stdout
        self.assertIn("__launch_bounds__(256, 3) on the kernel, or -maxrregcount=80", text)

    def test_no_advice_where_nothing_can_be_said(self):
        other = self.one(lambda line, _: line.update(max_active_blocks=4))
        self.assertEqual((other["no_advice"], other["advice"]), ("model_disagrees", []))
        unknown = self.one(lambda line, _: line.update(num_regs=None))
        self.assertEqual(unknown["no_advice"], "unknown_facts")
        def without_details(line, _):
            for key in ("occupancy", "num_regs", "static_shared_bytes", "max_active_blocks", "limiting_resource",
                        "limiting_resources", "limit_blocks", "occupancy_source", "local_bytes_per_thread",
                        "reg_occupancy", "smem_occupancy", "warp_occupancy", "block_occupancy", "barrier_occupancy",
                        "cluster_occupancy", "max_threads_per_block", "binary_version"):
                line.pop(key, None)
        self.assertEqual(self.one(without_details)["no_advice"], "no_details")
        self.assertIn("no advice: recorded without details=on", tool("explain", self.log).stdout)

    def test_which_kernels(self):
        log = write_log(self.folder / "a.ndjson", "--events", 3000, "--kernels", 300)
        facts = self.explain(log)
        self.assertEqual(len(facts["kernels"]), 1)  # the rest has less than a percent each
        self.assertEqual(facts["left_out"]["configs"], 299)
        self.assertIn("299 more configurations with 99.7% of launches (--all)", tool("explain", log).stdout)
        self.assertEqual(len(self.explain("--all", log)["kernels"]), 300)
        self.assertEqual(len(self.explain("--top", 5, log)["kernels"]), 5)
        for words in ((log, "reduce_42"), (log, "--kernel", "reduce_42"), ("--kernel", "*uce_42", log),
                      (log, "/reduce_42$/"), (log, self.folder, "reduce_42")):
            self.assertEqual([k["name"] for k in self.explain(*words)["kernels"]],
                             ["reduce_42(float const*, float*, int)"], words)
        none = tool("explain", log, "nosuch")
        self.assertEqual((none.returncode, none.stdout), (1, ""))
        self.assertIn("no kernel matches 'nosuch'", none.stderr)
        self.assertIn("cannot read", tool("explain", log, self.folder / "nosuch.ndjson").stderr)
        self.assertEqual(tool("explain", self.folder / "missing.ndjson").returncode, 1)

    def test_the_inputs_of_report(self):
        one = write_log(self.folder / "a.1.ndjson", "--events", 5000, "--segment", 65536, "--compress", "--pid", 1)
        self.assertTrue(list(self.folder.glob("*.zst")))
        write_log(self.folder / "a.2.ndjson", "--events", 1000, "--pid", 2)
        whole = self.explain(self.folder)
        self.assertEqual([log["pid"] for log in whole["logs"]], [1, 2])
        self.assertEqual([k["launches"] for k in whole["kernels"]], [3000, 3000])  # boards of one kind are one
        self.assertEqual(sum(k["launches"] for k in self.explain(one)["kernels"]), 5000)
        piped = subprocess.run([TOOL, "explain", "--json", "-"], input=(self.folder / "a.2.ndjson").read_bytes(),
                               capture_output=True, env=environment(), timeout=60)
        self.assertEqual(sum(k["launches"] for k in json.loads(piped.stdout)["kernels"]), 1000)

    def test_order_is_by_gpu_time_and_output_stable(self):
        log = write_log(self.folder / "a.ndjson", "--steps", 50)
        facts = self.explain("--all", log)
        self.assertEqual(facts["share_of"], "gpu_time")
        self.assertEqual([k["name"].split("(")[0] for k in facts["kernels"]], ["reduce_0", "reduce_1", "node"])
        self.assertAlmostEqual(sum(k["share"] for k in facts["kernels"]), 1)
        self.assertEqual(tool("explain", log).stdout, tool("explain", log).stdout)
        for width in (60, 120):
            text = tool("explain", "--width", width, log).stdout
            self.assertLessEqual(max(map(len, text.split("\n"))), width)

    def test_losses_are_said(self):
        log = write_log(self.folder / "a.ndjson", "--lost", 7)
        self.assertIn("lost 7 (pool_empty 7)", tool("explain", log).stdout)
        self.assertEqual(self.explain(log)["logs"][0]["lost"], 7)


class Occupancy(ExplainTest):
    NUMBERS = ("--regs", 40, "--block", 256, "--smem", 16384)

    def test_calculator(self):
        facts = self.answer("occupancy", "--arch", "sm_86", *self.NUMBERS)
        (board,) = facts["boards"]
        self.assertEqual((board["now"]["max_active_blocks"], board["now"]["limiting_resources"]), (5, ["shared_mem"]))
        self.assertEqual(board["now"]["limit_blocks"]["registers"], 6)
        self.assertEqual(board["max_potential_block_size"]["block_threads"], 768)
        curves = {c["over"]: c for c in board["curves"]}
        self.assertEqual(set(curves), {"block", "regs", "smem"})
        at = next(p for p in curves["smem"]["points"] if p["x"] >= 16000)
        self.assertEqual((at["x"], at["max_active_blocks"]), (16000, 6))
        at = next(p for p in curves["block"]["points"] if p["x"] == 768)
        self.assertEqual(at["occupancy"], 1.0)

    def test_the_same_bytes_in_other_words(self):
        plain = tool("occupancy", "--arch", "sm_86", *self.NUMBERS).stdout
        for words in (("--arch", "8.6", "--regs", 40, "--block", "256", "--smem", "16K"),
                      ("--arch", "rtx3090", "--regs", 40, "--block", "256x1x1", "--smem", "16KiB")):
            self.assertEqual(tool("occupancy", *words).stdout, plain)
        square = self.answer("occupancy", "--arch", "sm_86", "--regs", 40, "--block", "16x16", "--dynamic", "16K")
        self.assertEqual(square["boards"][0]["now"]["max_active_blocks"], 5)
        self.assertEqual(square["launch"]["block"], "(16,16,1)")

    def test_several_boards_and_curves(self):
        text = tool("occupancy", "--arch", "sm_75,sm_86", "--arch", "h200", *self.NUMBERS, "--curve", "block").stdout
        self.assertIn("sm_86 83.3% 5 40 of 48 shared memory 768 (100.0%) NVIDIA GeForce RTX 3090", " ".join(text.split()))
        self.assertEqual(text.count("occupancy over threads per block"), 3)
        self.assertIn("^ 256: 83.3%, 5 blocks, limited by shared memory", text)
        for curve, mark in (("regs", "^ 40: 83.3%"), ("smem", "^ 16,384: 83.3%")):
            drawn = tool("occupancy", "--arch", "sm_86", *self.NUMBERS, "--curve", curve, "--width", 80).stdout
            self.assertIn(mark, drawn)
            self.assertLessEqual(max(map(len, drawn.split("\n"))), 80)

    def test_carveout_and_clusters(self):
        facts = self.answer("occupancy", "--arch", "h200", "--regs", 16, "--block", 256, "--dynamic", "16K",
                            "--carveout", 25, "--cluster", 4)
        (board,) = facts["boards"]
        self.assertEqual(board["now"]["max_active_blocks"], 3)
        self.assertEqual([(a["from"], a["to"]) for a in self.advice(board, "carveout")], [(25, 29)])
        self.assertEqual(board["clusters_at_most"], 3 * 132 // 4)

    def test_what_cannot_be_launched(self):
        facts = self.answer("occupancy", "--arch", "sm_86", "--regs", 40, "--block", 256, "--dynamic", "200K",
                            "--cluster", 2)
        self.assertEqual(facts["boards"][0]["obstacles"], ["too_much_shared_memory", "no_clusters"])
        text = tool("occupancy", "--arch", "sm_86", "--regs", 40, "--block", 2048).stdout
        self.assertIn("Cannot be launched: a block has 1024 threads at most", text)

    def test_list(self):
        facts = self.answer("occupancy", "--list")
        names = [a["arch"] for a in facts["architectures"]]
        self.assertEqual((names[0], names[-1], len(names)), ("sm_50", "sm_121", 20))
        self.assertTrue(all(s["source"] for s in facts["sources"]))
        self.assertIn("sm_90      64      32", tool("occupancy", "--list").stdout)

    def test_usage(self):
        log = write_log(self.folder / "a.ndjson")
        for words in ((), ("--arch", "sm_86"), ("--arch", "sm_1", *self.NUMBERS), (*self.NUMBERS,),
                      ("--arch", "sm_86", "--regs", 40, "--block", "3x"), ("--arch", "sm_86", "--regs", 40, "--block", 0),
                      ("--arch", "sm_86", "--regs", -1, "--block", 32), (log,), (log, "--arch", "sm_86", *self.NUMBERS),
                      ("--arch", "sm_86", *self.NUMBERS, "--curve", "colour"),
                      ("--arch", "sm_86", "--regs", 40, "--block", 32, "--dynamic", "lots")):
            done = tool("occupancy", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertEqual(done.stderr.count("\n"), 1, (words, done.stderr))


if __name__ == "__main__":
    unittest.main(verbosity=2)
