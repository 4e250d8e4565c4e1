#!/usr/bin/env python3
"""The API: linked from C++, called through ctypes, together with the preload."""
import os

from sim_host import BUILD, HOSTS, LIBRARY, SANITIZE, SimTest, main, needs_python_host

import unittest

HOST = HOSTS / "api_host"
OK, INVALID, ALREADY, NOT_RECORDING, TIMEOUT, NO_DRIVER, NO_CUPTI, SLOT_TAKEN, IO = range(9)


def said(run):
    return dict(line.split("=", 1) for line in run.stdout.decode().splitlines())


class Linked(SimTest):
    def run_linked(self, verb, **options):
        options.setdefault("GPUFLIGHT_LOG", None)
        options.setdefault("preload", False)
        return self.run_host(HOST, verb, self.dir / "api.ndjson", LD_LIBRARY_PATH=f"{BUILD}/sim:{BUILD}/lib", **options)

    def test_tour(self):
        out = said(self.run_linked("tour"))
        self.assertEqual({key: int(out[key]) for key in out if key not in ("log", "stats")}, {
            "init": OK, "init_again": ALREADY, "flush": OK, "lines_after_flush": 8, "pause": OK, "resume": OK,
            "pause_release": OK, "resume_again": OK, "shutdown": OK, "flush_after": NOT_RECORDING,
            "shutdown_again": NOT_RECORDING})
        self.assertEqual(out["log"], str(self.dir / "api.ndjson"))
        log = self.log("api.ndjson")
        end = self.assert_balanced(log)
        self.assertEqual(end["reason"], "shutdown")
        scopes = {}
        for event in log.kernels:
            scopes.setdefault(event["grid"], []).append(event["scope"])
        self.assertEqual(scopes, {
            "(1,1,1)": ["step"] * 2, "(2,1,1)": ["step/forward"] * 3, "(3,1,1)": [None],
            "(4,1,1)": ['other "thread"'], "(5,1,1)": ["step"], "(6,1,1)": ["step"], "(7,1,1)": ["step"]})
        phases = [(e["phase"], e["scope"]) for e in log["scope_event"]]
        self.assertEqual(sorted(phases), sorted([
            ("begin", "step"), ("begin", "step/forward"), ("mark", "step/forward/half way"), ("end", "step/forward"),
            ("begin", 'other "thread"'), ("end", 'other "thread"')]))
        seen, written, kernels, configs = map(int, out["stats"].split(","))
        self.assertEqual((seen, written, kernels, configs), (14, 14, 1, 1))  # 8 launches, 6 scope events
        self.assertEqual(log.start["configuration"]["flush_ms"], "10ms")
        self.assertEqual(end["seen"], len(log.kernels) + len(log["scope_event"]))

    def test_capture_begun_while_the_slot_was_given_up(self):
        out = said(self.run_linked("blind"))
        self.assertEqual(int(out["questions"]), 1)  # of 300 launches on a stream that is not captured
        captured = {}
        for event in self.log("api.ndjson").kernels:
            captured.setdefault(event["grid"], set()).add(event.get("captured", False))
        self.assertEqual(captured, {"(1,1,1)": {False}, "(2,1,1)": {True}, "(3,1,1)": {False}, "(4,1,1)": {True},
                                    "(5,1,1)": {False}, "(6,1,1)": {False}})

    def test_environment_wins_over_options(self):
        self.run_linked("init_only", GPUFLIGHT_LOG=self.dir / "env.ndjson", GPUFLIGHT_FLUSH_MS="20ms")
        self.assertFalse((self.dir / "api.ndjson").exists())
        log = self.log("env.ndjson")
        self.assertEqual((len(log.kernels), log.start["configuration"]["flush_ms"]), (5, "20ms"))

    def test_linked_needs_no_call(self):
        out = said(self.run_linked("plain", GPUFLIGHT_LOG=self.dir / "log.ndjson"))
        self.assertEqual(int(out["init"]), ALREADY)
        log = self.log()
        self.assertEqual(len(log.kernels), 30)
        self.assert_balanced(log)

    def test_linked_and_preloaded_is_one_recorder(self):
        self.run_linked("plain", preload=True, GPUFLIGHT_LOG=self.dir / "log.ndjson")
        self.assertEqual([n for n in os.listdir(self.dir) if n.endswith(".ndjson")], ["log.ndjson"])
        log = self.log()
        self.assertEqual(len(log.kernels), 30)
        self.assertEqual(self.assert_balanced(log)["seen"], 32)  # and both ends of a scope

    @unittest.skipIf(SANITIZE, "a copy would need its own runtime")
    def test_linked_one_copy_and_preloaded_another(self):
        copy = self.dir / "elsewhere" / "libgpuflight.so"
        copy.parent.mkdir()
        # Another soname, or the loader takes it for the one that the program was linked to.
        soname = b"libgpuflight.so.1\0"
        whole = LIBRARY.read_bytes()
        self.assertIn(soname, whole)
        copy.write_bytes(whole.replace(soname, b"libgpuflighX.so.1\0"))
        out = said(self.run_linked("plain", LD_PRELOAD=copy, GPUFLIGHT_LOG=self.dir / "log.ndjson"))
        self.assertEqual(int(out["init"]), ALREADY)
        self.assertEqual([n for n in os.listdir(self.dir) if n.endswith(".ndjson")], ["log.ndjson"])
        self.assertEqual(len(self.log().kernels), 30)

    def test_details_off_asks_the_driver_nothing(self):
        on = said(self.run_linked("details_on"))
        first, again = map(int, on["questions"].split(","))
        self.assertGreater(first, 20)
        self.assertEqual(again, 0)  # once per configuration, never per launch
        with_details = self.log("api.ndjson")
        self.assertIn("occupancy", with_details.kernels[0])

        os.rename(self.dir / "api.ndjson", self.dir / "on.ndjson")
        off = said(self.run_linked("details_off"))
        self.assertEqual(off["questions"], "0,0")
        log = self.log("api.ndjson")
        self.assertEqual(len(log.kernels), 80)
        occupancy = {key for key in with_details.kernels[0] if "occupancy" in key or "limit" in key} | {
            "num_regs", "static_shared_bytes", "max_active_blocks"}
        self.assertGreater(len(occupancy), 9)
        for event in log.kernels:
            self.assertEqual(occupancy & set(event), set())
            self.assertIn(event["name"], ("a", "b"))
        self.assertEqual({e["block"] for e in log.kernels}, {f"({32 + 32 * i},1,1)" for i in range(5)})

    def test_no_driver(self):
        run = self.run_host(HOST, "no_driver", preload=False, sim=False, LD_LIBRARY_PATH=BUILD / "lib",
                            GPUFLIGHT_LOG=None, GPUFLIGHT_LIBCUDA="/nowhere/libcuda.so.1")
        out = run.stdout.decode()
        for line in (f"init={NO_DRIVER}", f"flush={NOT_RECORDING}", f"pause={NOT_RECORDING}", f"resume={NOT_RECORDING}",
                     f"shutdown={NOT_RECORDING}", 'log="" no usable CUDA driver'):
            self.assertIn(line, out)
        self.assertEqual(run.stderr, b"")
        self.assertEqual(os.listdir(self.dir), [])

    def test_cupti_trouble_has_its_status(self):
        for variables, status, code in (({"GPUFLIGHT_SIM_SUBSCRIBER_TAKEN": "1"}, SLOT_TAKEN, "cupti_slot_taken"),
                                        ({"GPUFLIGHT_SIM_CUPTI_TOO_NEW": "1"}, NO_CUPTI, "no_cupti")):
            with self.subTest(code):
                name = self.dir / f"{code}.ndjson"
                # No other libcupti of this machine may be found.
                out = said(self.run_linked("init_only", GPUFLIGHT_LOG=name, GPUFLIGHT_SIM_DRIVER_VERSION="13000",
                                           CUDA_HOME=None, **variables))
                self.assertEqual(int(out["init"]), status)
                self.assertEqual(len(self.log(name).notices(code)), 1)

    def test_a_log_that_cannot_be_written(self):
        run = self.run_host(HOST, "init_only", "/proc/x/log.ndjson", preload=False, GPUFLIGHT_LOG=None,
                            LD_LIBRARY_PATH=f"{BUILD}/sim:{BUILD}/lib")
        self.assertEqual(int(said(run)["init"]), IO)


class Ctypes(SimTest):
    SCRIPT = r"""
import ctypes, sys
flight = ctypes.CDLL(sys.argv[1])
class Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]
class Stats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(n, ctypes.c_uint64) for n in
        ("seen", "written", "summarised", "pending", "lost", "launches_missed_cache", "kernels", "configs")]
flight.gpuflight_log_path.restype = flight.gpuflight_version.restype = ctypes.c_char_p
flight.gpuflight_status_string.restype = ctypes.c_char_p
options = (Option * 2)((b"log", sys.argv[2].encode()), (b"no_such", b"x"))
print(flight.gpuflight_init(None, 1), flight.gpuflight_init(options, 2), flight.gpuflight_pause(7))
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
flight.gpuflight_push_scope("épisode".encode())
flight.gpuflight_push_scope(None)
flight.gpuflight_mark(b"m" * 5000)
for i in range(100): flight.gpuflight_push_scope(b"deep")
for i in range(101): flight.gpuflight_pop_scope()
for i in range(3): flight.gpuflight_pop_scope()
print(flight.gpuflight_flush(20000))
stats = Stats(size=ctypes.sizeof(Stats))
print(flight.gpuflight_get_stats(ctypes.byref(stats)), stats.seen, stats.written, stats.lost)
small = Stats(size=16, written=77)
print(flight.gpuflight_get_stats(ctypes.byref(small)), small.size, small.seen, small.written,
      flight.gpuflight_get_stats(None))
print(flight.gpuflight_log_path().decode(), flight.gpuflight_version().decode())
print(flight.gpuflight_status_string(8).decode())
"""

    @needs_python_host
    def test_from_python(self):
        preload = None
        if SANITIZE:
            from sim_host import preload_list
            preload = preload_list().split(":")[0]
        run = self.run_host("python3", "-c", self.SCRIPT, LIBRARY, self.dir / "py.ndjson", preload=False,
                            LD_PRELOAD=preload, GPUFLIGHT_LOG=None)
        lines = run.stdout.decode().splitlines()
        self.assertEqual(lines[0], f"{INVALID} {OK} {INVALID}")
        self.assertEqual(lines[1], f"{OK}")
        seen = 1 + 1 + 100 + 101
        self.assertEqual(lines[2], f"{OK} {seen} {seen} 0")
        self.assertEqual(lines[3], f"{OK} 16 {seen} 77 {INVALID}")
        self.assertTrue(lines[4].startswith(str(self.dir / "py.ndjson") + " 0."))
        self.assertEqual(lines[5], "the log or the flight file cannot be written")
        log = self.log("py.ndjson")
        self.assert_balanced(log)
        scopes = [(e["phase"], e["scope"]) for e in log["scope_event"]]
        self.assertEqual(scopes[0], ("begin", "épisode"))
        self.assertEqual(scopes[1], ("mark", "épisode/" + "m" * 4096))
        self.assertEqual(scopes[-1], ("end", "épisode"))
        self.assertEqual(sum(p == "begin" for p, _ in scopes), sum(p == "end" for p, _ in scopes))
        self.assertIn("no_such", log.notices("option")[0]["message"])


if __name__ == "__main__":
    main()
