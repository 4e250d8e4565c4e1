#!/usr/bin/env python3
"""Options as a user gets them wrong, and the promise that a program is the same program with us in it."""
import os
import pathlib

from sim_host import PLANS, SANITIZE, SimTest, main, needs_python_host, quick_plan


class Options(SimTest):
    def test_unknown_and_malformed_values_are_said_and_the_defaults_used(self):
        self.play(quick_plan(), GPUFLIGHT_LOGG="x", GPUFLIGHT_LOG_MAX="lots", GPUFLIGHT_DETAILS="perhaps",
                  GPUFLIGHT_MODE="steam", GPUFLIGHT_FLUSH_MS="5h", GPUFLIGHT_KERNELS_MAX="-1")
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual(len(log.kernels), 5)
        said = [n["message"] for n in log.notices("option")]
        self.assertEqual(len(said), 6, said)
        for word in ("GPUFLIGHT_LOGG", "GPUFLIGHT_LOG_MAX", "GPUFLIGHT_DETAILS", "GPUFLIGHT_MODE", "GPUFLIGHT_FLUSH_MS",
                     "GPUFLIGHT_KERNELS_MAX"):
            self.assertEqual(sum(line.startswith(word) for line in said), 1, (word, said))
        self.assertTrue(any("did you mean GPUFLIGHT_LOG?" in line for line in said), said)
        self.assertTrue(any("lots" in line and "2G" in line for line in said), said)
        configuration = log.start["configuration"]
        self.assertEqual((configuration["log_max"], configuration["details"], configuration["mode"],
                          configuration["flush_ms"], configuration["kernels_max"]),
                         ("2G", "on", "stream", "50ms", "16384"))

    def test_good_values_are_in_force(self):
        self.play(quick_plan(), GPUFLIGHT_DETAILS="off", GPUFLIGHT_POOL="2M", GPUFLIGHT_MASK_ARGS="on")
        log = self.log()
        self.assertEqual(log["notice_event"], [])
        self.assertEqual((log.start["configuration"]["details"], log.start["configuration"]["pool"]), ("off", "2M"))
        self.assertNotIn("occupancy", log.kernels[0])
        self.assertEqual(log.kernels[0]["name"], "k")
        self.assertEqual((log.start["args"][1:], log.start["args_masked"]), (["***"] * 3, True))

    def test_verbose_says_it_on_stderr_too_and_quiet_says_nothing(self):
        verbose = self.play(quick_plan(), GPUFLIGHT_LOGG="x", GPUFLIGHT_VERBOSE="on")
        self.assertIn(b"GPUFLIGHT_LOGG", verbose.stderr)
        self.assertEqual(verbose.stderr.count(b"\n"), 1)
        quiet = self.play(quick_plan(), GPUFLIGHT_LOGG="x", GPUFLIGHT_VERBOSE="on", GPUFLIGHT_QUIET="on",
                          GPUFLIGHT_LOG=self.dir / "quiet.ndjson")
        self.assertEqual(quiet.stderr, b"")

    @needs_python_host
    def test_secrets_in_arguments_are_masked(self):
        script = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
        self.run_host("python3", "-c", script, "--lr", "0.1", "--api-key", "hunter2", "HF_TOKEN=hf_abcdef")
        log = self.log()
        self.assertEqual(log.start["args"][3:], ["--lr", "0.1", "--api-key", "***", "HF_TOKEN=***"])
        self.assertTrue(log.start["args_masked"])
        self.assertNotIn(b"hunter2", b"".join(log.lines))

    def test_more_kernels_than_the_table_holds(self):
        kernels = {f"k{i}": {"name": f"k{i}", "registers": 16 + i, "duration_us": 1} for i in range(40)}
        ops = [{"op": "launch", "kernel": k, "grid": 1, "block": 32, "times": 2} for k in kernels]
        self.play({"device": {"board": "sm_86"}, "modules": {"m": {"kernels": kernels}}, "threads": [{"ops": ops}]},
                  GPUFLIGHT_KERNELS_MAX="16", GPUFLIGHT_CONFIGS_MAX="16")
        log = self.log()
        end = self.assert_balanced(log)
        self.assertEqual(len(log.kernels), 80)
        unknown = [e for e in log.kernels if e["name"] is None]
        self.assertGreater(len(unknown), 0)
        self.assertEqual(end["table_full"], len(unknown))
        self.assertEqual(len(log.notices("kernel_table_full")), 1)
        for event in log.kernels:
            if event["name"] is not None:
                self.assertEqual(event["num_regs"], 16 + int(event["name"][1:]))


class NotWanted(SimTest):
    def test_no_file_at_all(self):
        for variables in ({"GPUFLIGHT_ENABLED": "off"}, {"GPUFLIGHT_EXCLUDE": "*-play"},
                          {"GPUFLIGHT_INCLUDE": "python*,train"},
                          {"GPUFLIGHT_INCLUDE": "gpuflight-*", "GPUFLIGHT_EXCLUDE": "other,gpuflight-pl?y"}):
            with self.subTest(variables):
                run = self.play(quick_plan(), GPUFLIGHT_LOG=self.dir / "sub" / "log.ndjson", **variables)
                self.assertEqual((run.stdout, run.stderr), (b"", b""))
                self.assertFalse((self.dir / "sub").exists())

    def test_included(self):
        self.play(quick_plan(), GPUFLIGHT_INCLUDE="train,gpuflight-p*", GPUFLIGHT_EXCLUDE="bash")
        self.assertEqual(len(self.log().kernels), 5)

    def test_a_program_without_cuda_leaves_nothing(self):
        folder = self.dir / "sub"
        run = self.run_host("/bin/sh", "-c", "echo out; echo err >&2; exit 3", expect=3,
                            GPUFLIGHT_LOG=folder / "log.ndjson")
        self.assertEqual((run.stdout, run.stderr), (b"out\n", b"err\n"))
        self.assertFalse(folder.exists())


class Unharmed(SimTest):
    """Exit code, stdout and stderr, byte for byte, with and without us, for every plan there is."""

    def both(self, plan, *arguments, **variables):
        bare = self.play(plan, *arguments, preload=False, expect=None, **variables)
        with_us = self.play(plan, *arguments, expect=None, **variables)
        self.assertEqual((with_us.rc, with_us.stdout, with_us.stderr), (bare.rc, bare.stdout, bare.stderr))
        strip = lambda result: {k: v for k, v in (result or {}).items() if k != "seconds"}  # noqa: E731
        self.assertEqual(strip(with_us.result), strip(bare.result))
        return with_us

    def test_every_plan(self):
        plans = sorted(p.stem for p in pathlib.Path(PLANS).glob("*.json"))
        self.assertGreaterEqual(len(plans), 6)
        for plan in plans:
            with self.subTest(plan):
                played = self.both(plan, GPUFLIGHT_LOG=self.dir / f"{plan}.ndjson", GPUFLIGHT_EXIT_TIMEOUT_MS="120s")
                if plan != "many_threads":  # ledger_test.py has that one
                    log = self.log(f"{plan}.ndjson")
                    self.assert_balanced(log)
                    self.assert_counts(log, played.result)

    def test_a_plan_that_fails(self):
        plan = quick_plan()
        plan["threads"][0]["ops"].append({"op": "launch", "kernel": "k", "grid": 1, "block": 4096})
        played = self.both(plan)
        self.assertEqual(played.rc, 1)
        self.assertIn(b"INVALID_VALUE", played.stderr)

    def test_ends_of_all_kinds(self):
        # A sanitizer tells of a SEGV itself, with the process id.
        for how in ("exit", "_exit", "abort", "kill", "term") + (() if SANITIZE else ("segv",)):
            with self.subTest(how):
                plan = quick_plan(times=1000)
                plan["threads"][0]["ops"].append({"op": "end", "how": how})
                self.both(plan, GPUFLIGHT_LOG=self.dir / f"{how}.ndjson")

    @needs_python_host
    def test_no_signal_disposition_is_changed_and_no_descriptor_is_left(self):
        script = ("import ctypes, os, signal\n"
                  "c = ctypes.CDLL('libcuda.so.1')\n"
                  "before = [signal.getsignal(s) for s in signal.valid_signals()]\n"
                  "mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
                  "fds = os.listdir('/proc/self/fd')\n"
                  "assert c.cuInit(0) == 0\n"
                  # 32 and 33 are the C library's own, taken with the first thread.
                  "masks = lambda: [hex(int(l.split()[1], 16) & ~(3 << 31)) for l in open('/proc/self/status')\n"
                  "                 if l.startswith(('SigIgn', 'SigCgt', 'SigBlk'))]\n"
                  "print(before == [signal.getsignal(s) for s in signal.valid_signals()],\n"
                  "      mask == signal.pthread_sigmask(signal.SIG_BLOCK, []), fds == os.listdir('/proc/self/fd'),\n"
                  "      os.path.exists(os.environ['GPUFLIGHT_LOG']), masks())\n")
        with_us = self.run_host("python3", "-c", script)
        bare = self.run_host("python3", "-c", script, preload=False, GPUFLIGHT_LOG=os.devnull)
        self.assertEqual(with_us.stdout, bare.stdout)
        self.assertTrue(with_us.stdout.startswith(b"True True True True"))


if __name__ == "__main__":
    main()
