#!/usr/bin/env python3
"""Calls beside launches: each is in the log as the program itself says it made it, allocations with their sizes and
running totals, edges between streams with their events, also when the program was killed."""
import collections
import json

from kill_rounds import killed_while_it_counts, recover
from sim_host import CAPTURE, HOSTS, SANITIZE, Log, SimTest, main

HOST = HOSTS / "calls_host"
RING_TYPES = ("kernel_event", "graph_launch_event", "scope_event", "sync_event", "api_event", "memcpy_event",
              "memset_event", "memory_event", "stream_edge")
SYNCS = {"cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"}
EDGES = {"cuEventRecord": "record", "cuEventRecordWithFlags": "record", "cuStreamWaitEvent": "wait"}
KINDS = {"cuMemAlloc": "device", "cuMemAllocPitch": "device", "cuMemAllocAsync": "pool",
         "cuMemAllocFromPoolAsync": "pool", "cuMemFreeAsync": "pool", "cuMemAllocManaged": "managed",
         "cuMemAllocHost": "pinned", "cuMemHostAlloc": "pinned", "cuMemFreeHost": "pinned",
         "cuMemHostRegister": "registered", "cuMemHostUnregister": "registered", "cuMemCreate": "virtual",
         "cuMemRelease": "virtual", "cuMemMap": "mapping", "cuMemUnmap": "mapping"}
FREES = {"cuMemFree", "cuMemFreeAsync", "cuMemFreeHost", "cuMemHostUnregister", "cuMemRelease", "cuMemUnmap"}


def in_order(log):
    """What the threads did, by number."""
    return sorted((e for kind in RING_TYPES for e in log[kind]), key=lambda e: e["seq"])


def hexadecimal(value):
    return None if value is None else f"0x{value:016x}"


class Balance:
    """What there is of each kind, device and pool, by the host's own account."""

    def __init__(self):
        self.now, self.peak, self.live = collections.Counter(), collections.Counter(), {}

    def alloc(self, key, address, size):
        self.live[key[0] in ("virtual", "mapping", "registered") and key[0], address] = key, size
        self.now[key] += size
        self.peak[key] = max(self.peak[key], self.now[key])

    def free(self, space, address):
        key, size = self.live.pop((space, address))
        self.now[key] -= size
        return key


class Calls(SimTest):
    def run_calls(self, *arguments, **variables):
        run = self.run_host(HOST, *arguments, GPUFLIGHT_SIM_DEVICE="h200", GPUFLIGHT_FLUSH_MS="10ms", **variables)
        return [json.loads(line) for line in run.stdout.splitlines()], self.log()

    def test_each_call_is_there_as_it_was_made(self):
        said, log = self.run_calls("all")
        lines = in_order(log)
        self.assertEqual(len(lines), len(said))
        self.assert_balanced(log)
        self.assert_unique_seq(log)
        for call, line in zip(said, lines):
            with self.subTest(call=call["call"], seq=line["seq"]):
                self.check_line(call, line)
        self.assertEqual(log.notices(), [])

    def check_line(self, call, line):
        name = call["call"]
        if name in SYNCS:
            self.assertEqual((line["type"], line["call"]), ("sync_event", name))
        elif name in EDGES:
            self.assertEqual((line["type"], line["operation"], line["event"]),
                             ("stream_edge", EDGES[name], hexadecimal(call["address"])))
            self.assertIsNotNone(line["stream"])
        elif name in KINDS or name in FREES:
            self.assertEqual((line["type"], line["call"]), ("memory_event", name))
            self.assertEqual(line["operation"], "free" if name in FREES else "alloc")
            self.assertEqual(line["address"], hexadecimal(call["address"] or None))
            self.assertEqual(line["bytes"], call["bytes"] or None)
        elif name.startswith("cuMemPrefetch"):
            self.assertEqual((line["type"], line["call"]), ("api_event", name))
        elif line["type"] == "api_event":  # captured: the GPU tells nothing of it
            self.assertEqual(line["call"], name)
        else:
            self.assertEqual(line["type"], "memset_event" if "Memset" in name else "memcpy_event")
            self.assertEqual(line["async"], name.endswith("Async"))
            self.assertIsNotNone(line["correlation"])
        if "status" in line:
            self.assertEqual(line["status"], call["status"])
            self.assertGreaterEqual(line["call_ns"], 0)

    def test_totals_are_those_of_the_program(self):
        said, log = self.run_calls("all")
        balance = Balance()
        for call, line in zip(said, in_order(log)):
            name = call["call"]
            if line["type"] != "memory_event":
                continue
            if name not in FREES:
                device = 0 if KINDS[name] in ("device", "pool", "virtual", "mapping") else None
                pool = hexadecimal(call["owner"]) if name == "cuMemAllocFromPoolAsync" else None
                key = (KINDS[name], device, pool)
                if call["status"] == 0:
                    balance.alloc(key, call["address"], call["bytes"])
            elif call["status"] != 0:  # of what never was
                self.assertEqual((line["kind"], line["total_bytes"], line["peak_bytes"]), (None, None, None))
                continue
            elif name == "cuMemUnmap":
                for address in [a for s, a in balance.live if s == "mapping"]:
                    key = balance.free("mapping", address)
            else:
                space = {"cuMemRelease": "virtual", "cuMemHostUnregister": "registered"}.get(name, False)
                key = balance.free(space, call["address"])
            self.assertEqual((line["kind"], line["device"], line["pool"]), key, call)
            self.assertEqual((line["total_bytes"], line["peak_bytes"]), (balance.now[key], balance.peak[key]), call)
        self.assertEqual(+balance.now, {})
        self.assertGreater(len(balance.peak), 7)

    def test_streams_are_told_apart(self):
        said, log = self.run_calls("all")
        kinds = {s["stream"]: s["kind"] for s in log["stream_info"]}
        seen = set()
        for call, line in zip(said, in_order(log)):
            on_stream = call["call"].endswith("Async") or call["call"] in EDGES or call["call"] == "cuStreamSynchronize"
            if not on_stream or line.get("stream") is None:
                self.assertTrue(not on_stream or line["stream"] is not None, call)
                continue
            per_thread = call["per_thread"] and call["call"] != "cuStreamWaitEvent"  # which has a stream of its own
            if call["call"] != "cuMemPrefetchAsync":  # into the legacy stream
                self.assertEqual(kinds[line["stream"]], "per_thread_default" if per_thread else "created", call)
            seen.add(per_thread)
        self.assertEqual(seen, {True, False})

    def test_what_joins_a_capture_is_captured(self):
        said, log = self.run_calls("all")
        captured = [e for e in log["stream_edge"] if e["captured"]]
        self.assertEqual([e["operation"] for e in captured], ["record", "wait"] * 2)
        self.assertEqual(len({e["stream"] for e in captured}), 2)
        last = said[-7:-1]  # the captured part
        self.assertEqual([c["call"] for c in last], ["cuEventRecord", "cuStreamWaitEvent", "cuMemsetD8Async",
                                                     "cuEventRecord", "cuStreamWaitEvent", "cuMemFree"])
        if CAPTURE == "interpose":
            return
        # The GPU tells nothing of a fill that went into a graph.
        self.assertEqual([e["call"] for e in log["api_event"] if "Memset" in e["call"]], ["cuMemsetD8Async"])

    def test_one_allocates_and_another_frees(self):
        threads = 4 if SANITIZE else 16
        _, log = self.run_calls("threads", threads)
        self.assert_balanced(log)
        events = log["memory_event"]
        self.assertEqual(len(events), threads * 300 * 2)
        frees = [e for e in events if e["operation"] == "free"]
        self.assertEqual({e["status"] for e in events}, {0})
        # Between looking at two rings a free may be seen before what it frees: then its size is not known.
        unknown = [e for e in frees if e["bytes"] is None]
        self.assertLess(len(unknown), len(frees) / 2)  # few, unless the machine is busy with other things
        sizes = collections.Counter(e["bytes"] for e in events if e["operation"] == "alloc")
        self.assertEqual(sizes, {64 * (t + 1): 300 for t in range(threads)})
        # In the order of time the last word on each kind is: nothing left.
        for kind in ("device", "pool") if not unknown else ():
            last = max((e for e in events if e["kind"] == kind), key=lambda e: e["time_ns"])
            self.assertEqual((last["operation"], last["total_bytes"]), ("free", 0), last)

    def test_edges_can_be_left_out(self):
        _, log = self.run_calls("edges", 50)
        self.assertEqual(len(log["stream_edge"]), 100)
        _, log = self.run_calls("edges", 50, GPUFLIGHT_EDGES="off", GPUFLIGHT_LOG=self.dir / "off.ndjson")
        log = self.log("off.ndjson")
        self.assertEqual(len(log["stream_edge"]), 0)
        self.assertEqual(len(log.kernels), 1)
        self.assert_balanced(log)

    def test_without_gpu_times_copies_are_calls(self):
        said, log = self.run_calls("all", GPUFLIGHT_TIMING="off")
        names = [c["call"] for c in said if c["call"].startswith(("cuMemcpy", "cuMemset", "cuMemPrefetch"))]
        self.assertEqual([e["call"] for e in sorted(log["api_event"], key=lambda e: e["seq"])], names)
        self.assertEqual(log["memcpy_event"] + log["memset_event"], [])

    def test_black_box_dumps_them(self):
        said, _ = self.run_calls("all", GPUFLIGHT_MODE="blackbox")
        said_log = recover(self.dir / "log.flight", "--output", self.dir / "recovered.ndjson")
        self.assertEqual(said_log[0], 0)
        kinds = collections.Counter(e["call"] for e in Log(self.dir / "recovered.ndjson")["memory_event"])
        self.assertEqual(kinds, collections.Counter(c["call"] for c in said if c["call"] in KINDS or c["call"] in FREES))

    def test_killed(self):
        counted, code, said = killed_while_it_counts(self.dir, HOST, "forever")
        self.assertEqual((code, said["verdict"]), (4, "stopped"))
        self.assertTrue(said["ledger"]["balanced"], said["ledger"])
        self.assertEqual(said["ledger"]["lost"], 0, said["ledger"])
        logs = [Log(self.dir / "log.ndjson"), Log(said["written_to"])]
        self.assertGreater(sum(len(logs[1][kind]) for kind in ("memory_event", "stream_edge")), 0)
        lines = sorted((e for log in logs for e in in_order(log)), key=lambda e: e["seq"])
        self.assertGreaterEqual(len(lines), counted)
        self.assertEqual([e["seq"] - lines[0]["seq"] for e in lines], list(range(len(lines))))
        # The same calls in turn, whichever file they are in.
        turn = [("memory_event", "alloc", "device"), ("memory_event", "alloc", "pool"), ("memset_event", None, None),
                ("stream_edge", "record", None), ("stream_edge", "wait", None), ("memory_event", "free", "pool"),
                ("memory_event", "free", "device")]
        recovered = {e["seq"] for e in in_order(logs[1])}
        for i, line in enumerate(lines):
            kind, operation, memory = turn[i % len(turn)]
            if kind == "memset_event":
                self.assertIn(line["type"], ("memset_event", "api_event"))
                continue
            self.assertEqual((line["type"], line["operation"]), (kind, operation), line)
            if memory is not None and not (line["seq"] in recovered and operation == "free"):
                self.assertEqual(line["kind"], memory, line)
                self.assertEqual(line["bytes"], 4096 if memory == "device" else 100)
            if line["seq"] in recovered and kind == "memory_event":
                self.assertIsNone(line["total_bytes"])  # nobody counts for a dead program
                if line["status"] is not None:
                    self.assertIsNotNone(line["address"])


if __name__ == "__main__":
    main()
