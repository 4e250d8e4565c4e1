#!/usr/bin/env python3
"""NVTX of a program that knows nothing of us: scopes, ranges and marks in the log, and the paths of its launches."""
import collections
import subprocess

from kill_rounds import killed_while_it_counts
from sim_host import HOSTS, SANITIZE, Log, SimTest, main

HOST = HOSTS / "nvtx_host"


def paths(log):
    """Where the launch with each grid was made."""
    return {int(k["grid"].strip("()").split(",")[0]): k["scope"] for k in log.kernels}


def turns(log):
    return sorted(log["scope_event"], key=lambda e: e["seq"])


class Nvtx(SimTest):
    def run_nvtx(self, *arguments, **variables):
        run = self.run_host(HOST, *arguments, GPUFLIGHT_SIM_DEVICE="h200", GPUFLIGHT_FLUSH_MS="10ms", **variables)
        return run, self.log()

    def test_launches_know_where_they_were_made(self):
        run, log = self.run_nvtx("tour")
        self.assertEqual(run.stdout, b"same_domain=1\n")
        self.assert_balanced(log)
        self.assert_unique_seq(log)
        self.assertEqual(paths(log), {
            1: "popped early/before/lib:early", 2: "popped early/before/step", 3: "popped early/before", 4: None, 5: None,
            6: "again", 7: "again/api", 8: "api", 9: None,
            10: "lib:inner", 11: "lib:inner/outer", 12: "outer", 13: None,
            14: "lib:registered \u00fc", 15: "wide registered", 16: "w\u00e4\u20ac\U0001F600",
            17: "\ufffd\ufffd no \"utf\"\n", 18: "", 19: "(no text)", 20: "(no text)", 21: "p",
            22: "x" * 4096, 23: "/".join("d" * 64), 24: None, 25: "left open", 26: None, 27: "lib:still",
            28: "one", 29: "two"})
        self.assertEqual(log.notices(), [])

    def test_scopes_begin_and_end(self):
        _, log = self.run_nvtx("tour")
        open_ones = collections.defaultdict(list)
        for event in turns(log):
            if "range" in event or event["phase"] == "mark":
                continue
            if event["phase"] == "begin":
                open_ones[event["thread"]].append(event["scope"])
            else:
                self.assertIn(event["scope"], open_ones[event["thread"]])
                open_ones[event["thread"]].remove(event["scope"])
        self.assertEqual(sorted(open_ones.values()), [[], ["left open"]])
        begun = [e["scope"] for e in turns(log) if e["phase"] == "begin" and "range" not in e]
        self.assertEqual(begun[:4], ["popped early", "popped early/before", "popped early/before/lib:early",
                                     "popped early/before/step"])  # those of before the recording begin with it
        self.assertNotIn("popped before", begun)

    def test_ranges_and_marks(self):
        _, log = self.run_nvtx("tour")
        self.assertEqual([e["scope"] for e in turns(log) if e["phase"] == "mark"],
                         ["p/m", "p/m\u00fc", "p/lib:dm", "p/dm"])
        ranges = collections.defaultdict(list)
        for event in sorted(log["scope_event"], key=lambda e: e["time_ns"]):
            if "range" in event:
                ranges[event["range"]].append(event)
        self.assertEqual(sorted(e[0]["scope"] for e in ranges.values()), ["cross", "cross", "lib:dm"])
        for begin, end in ranges.values():
            self.assertEqual((begin["phase"], end["phase"], end["scope"]), ("begin", "end", begin["scope"]))
        crossed = [b["thread"] != e["thread"] for b, e in ranges.values()]
        self.assertEqual(sorted(crossed), [False, True, True])

    def test_many_threads(self):
        count = 4 if SANITIZE else 16
        _, log = self.run_nvtx("threads", count)
        self.assert_balanced(log)
        self.assertEqual(collections.Counter(k["scope"] for k in log.kernels),
                         {f"thread {t}/n{n}/d:in": 2 for t in range(count) for n in range(100)})
        by_kind = collections.Counter((e["phase"], "range" in e) for e in log["scope_event"])
        self.assertEqual(by_kind, {("begin", False): count * 401, ("end", False): count * 400,
                                   ("begin", True): count * 200, ("end", True): count * 200,
                                   ("mark", False): count * 200})
        ends = {(e["scope"], e["phase"]) for e in log["scope_event"] if "range" not in e}
        self.assertIn(("thread 0/n1/d:in", "end"), ends)
        self.assertNotIn(("thread 0/d:in", "end"), ends)  # the path of its begin

    def test_without_cuda_nothing_is_started(self):
        run = self.run_host(HOST, "no_cuda")
        self.assertEqual((run.stdout, run.stderr), (b"loaded=0\n", b""))
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_a_child_is_where_its_parent_was(self):
        _, log = self.run_nvtx("fork")
        self.assertEqual(paths(log), {1: "parent/child", 2: "parent", 3: None})

    def test_paused_and_ended(self):
        _, log = self.run_nvtx("paused")
        self.assertEqual(paths(log), {1: "a/b", 2: "a"})
        self.assert_balanced(log)

    def test_off_and_other_tools(self):
        _, log = self.run_nvtx("tour", GPUFLIGHT_NVTX="off")
        self.assertEqual({e["scope"] for e in log["scope_event"]}, {"api"})
        # Another tool's place is left to it, here one that does not want any.
        other = self.dir / "other.so"
        subprocess.run(["gcc", "-shared", "-o", other, "-x", "c", "-"], check=True,
                       input=b"int InitializeInjectionNvtx2(void* t) { (void)t; return 0; }")
        self.run_nvtx("tour", NVTX_INJECTION64_PATH=other, GPUFLIGHT_LOG=self.dir / "other.ndjson")
        self.assertEqual({e["scope"] for e in self.log("other.ndjson")["scope_event"]}, {"api"})
        self.run_nvtx("tour", GPUFLIGHT_EXCLUDE="nvtx_*", GPUFLIGHT_LOG=self.dir / "excluded.ndjson")
        self.assertFalse((self.dir / "excluded.ndjson").exists())

    def test_more_names_than_there_is_room_for(self):
        _, log = self.run_nvtx("full", 17000)
        self.assertEqual(paths(log), {1: "outer", 2: None})
        self.assert_balanced(log)
        self.assertEqual([n["severity"] for n in log.notices("scope_table_full")], ["warning"])
        (count,) = log.notices("scopes_refused")
        self.assertEqual(count["message"].split()[0], str(17000 - (16384 - 2)))
        self.assertEqual(len(log["scope_event"]), 2 * 17001)

    def test_killed(self):
        counted, code, said = killed_while_it_counts(self.dir, HOST, "forever")
        self.assertEqual((code, said["verdict"], said["ledger"]["lost"]), (4, "stopped", 0), said)
        logs = [Log(self.dir / "log.ndjson"), Log(said["written_to"])]
        self.assertGreater(len(logs[1]["scope_event"]), 0)
        events = sorted((e for log in logs for e in log["scope_event"]), key=lambda e: e["seq"])
        self.assertGreaterEqual(len(events), counted)
        turn = [("begin", "step", False), ("mark", "step/m", False), ("begin", "r", True), ("end", "r", True),
                ("end", "step", False)]
        for i, event in enumerate(events):
            self.assertEqual((event["phase"], event["scope"], "range" in event), turn[i % 5])


if __name__ == "__main__":
    main()
