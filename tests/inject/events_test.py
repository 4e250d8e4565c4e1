#!/usr/bin/env python3
"""What a kernel_event says: the article's values, every form of launch, handles used again, hostile names."""
import base64
import json

from sim_host import CAPTURE, HOSTS, SOURCE, SimTest, main, name_of

# Keys, order and JSON types that people have scripts for. Never to be changed.
SEED_KEYS = {
    "type": str, "name": str, "occupancy": float, "num_regs": int, "static_shared_bytes": int, "dyn_shared_bytes": int,
    "block": str, "grid": str, "max_active_blocks": int, "reg_occupancy": float, "smem_occupancy": float,
    "warp_occupancy": float, "block_occupancy": float, "limiting_resource": str,
}


class Article(SimTest):
    def test_published_values_to_the_last_digit(self):
        self.play("article_sm86")
        log = self.log()
        naive, optimized = log.kernels
        self.assertEqual({key: naive[key] for key in SEED_KEYS}, {
            "type": "kernel_event", "name": "_Z18block_reduce_naivePKfPfi", "occupancy": 0.833333, "num_regs": 16,
            "static_shared_bytes": 16384, "dyn_shared_bytes": 0, "block": "(256,1,1)", "grid": "(16384,1,1)",
            "max_active_blocks": 5, "reg_occupancy": 1.0, "smem_occupancy": 0.833333, "warp_occupancy": 1.0,
            "block_occupancy": 1.0, "limiting_resource": "shared_mem"})
        self.assertEqual({key: optimized[key] for key in SEED_KEYS}, {
            "type": "kernel_event", "name": "_Z22block_reduce_optimizedPKfPfi", "occupancy": 1.0, "num_regs": 16,
            "static_shared_bytes": 0, "dyn_shared_bytes": 1024, "block": "(256,1,1)", "grid": "(16384,1,1)",
            "max_active_blocks": 6, "reg_occupancy": 1.0, "smem_occupancy": 1.0, "warp_occupancy": 1.0,
            "block_occupancy": 1.0, "limiting_resource": "warps"})
        for event in (naive, optimized):
            self.assertEqual(list(event)[:len(SEED_KEYS)], list(SEED_KEYS))
            self.assertEqual({key: type(event[key]) for key in SEED_KEYS}, SEED_KEYS)
        # The digits themselves, not only what a parser makes of them.
        text = b"\n".join(log.lines)
        self.assertIn(b'"occupancy":0.833333,"num_regs":16,', text)
        self.assertIn(b'"reg_occupancy":1.0,"smem_occupancy":0.833333,"warp_occupancy":1.0,"block_occupancy":1.0,'
                      b'"limiting_resource":"shared_mem"', text)
        self.assertEqual(naive["occupancy_source"], "driver")
        # Two launches, and the synchronisation after each.
        self.assertEqual([e["call"] for e in log["sync_event"]], ["cuCtxSynchronize"] * 2)
        self.assertEqual(self.assert_balanced(log)["seen"], len(log.kernels) + len(log["sync_event"]))
        self.assert_unique_seq(log)

    def test_same_plan_on_another_board(self):
        self.play("article_sm86", GPUFLIGHT_SIM_DEVICE="sm_90")
        naive = self.log().kernels[0]
        self.assertEqual((naive["max_active_blocks"], naive["occupancy"], naive["limiting_resource"]),
                         (8, 1.0, "warps"))
        self.assertEqual(naive["limit_blocks"]["shared_mem"], 13)


class EveryForm(SimTest):
    @classmethod
    def setUpClass(cls):
        cls.plan = json.loads((SOURCE / "tests" / "plans" / "every_form.json").read_text())

    def launches(self, ops):
        for op in ops:
            if op["op"] == "launch":
                yield op
            elif op["op"] == "repeat":
                yield from list(self.launches(op["ops"])) * op["times"]

    def test_each_launch_is_there_with_its_own_facts(self):
        played = self.play("every_form", GPUFLIGHT_CALL_TIMES="all")
        log = self.log()
        self.assert_counts(log, played.result)
        self.assert_unique_seq(log)
        end = self.assert_balanced(log)
        self.assertEqual(end["launches"] + end["captured"], len(log.kernels))
        self.assertEqual(end["launches"], played.result["launches"]["returned"] - played.result["launches"]["captured"])
        self.assertEqual(end["captured"], played.result["launches"]["captured"])
        self.assertEqual(end["graph_launches"], played.result["graph_launches"])

        by_grid = {}
        for event in log.kernels:
            by_grid.setdefault(event["grid"], []).append(event)
        kernels = {key: kernel for module in self.plan["modules"].values() for key, kernel in module["kernels"].items()}
        launches = list(self.launches(self.plan["threads"][0]["ops"]))
        self.assertGreater(len(launches), 25)
        threads = {event["thread"] for event in log.kernels}
        self.assertEqual(len(threads), 1)
        for op in launches:
            grid, block = dims(op["grid"]), dims(op["block"])
            if op.get("form") == "legacy":
                grid = (1, 1, 1)  # cuLaunch has no grid
            events = by_grid[text(grid)]
            self.assertEqual(len(events), op.get("times", 1), op)
            kernel = kernels[op["kernel"]]
            for event in events:
                self.assertEqual(event["name"], kernel["name"])
                self.assertEqual(event["num_regs"], kernel["registers"])
                self.assertEqual(event["static_shared_bytes"], kernel.get("static_shared_bytes", 0))
                self.assertEqual(event["local_bytes_per_thread"], kernel.get("local_bytes", 0))
                self.assertEqual(event["block"], text(block))
                self.assertEqual(event["dyn_shared_bytes"], op.get("dynamic_shared", 0))
                self.assertEqual(event["cluster"], text(dims(op["cluster"])) if "cluster" in op else None)
                self.assertEqual(event["cooperative"],
                                 op.get("cooperative", op.get("form") in ("coop", "coop_multi")))
                self.assertEqual(event["status"], 0)
                self.assertGreater(event["call_ns"], 0)
                self.assertLess(event["call_ns"], 10_000_000_000)
                self.assertEqual((event["device"], event["context"]), (0, log["stream_info"][0]["context"]))
                self.assertTrue(event["correlation"] is None if CAPTURE == "interpose" else event["correlation"] > 0)
            if "carveout" in op:
                self.assertEqual([e["carveout"] for e in events], [op["carveout"]] * len(events))
                self.assertEqual({e["occupancy_source"] for e in events}, {"model"})
        if CAPTURE == "interpose":
            return
        self.assertEqual(len({e["correlation"] for e in log.kernels + log["graph_launch_event"]}),
                         len(log.kernels) + len(log["graph_launch_event"]))

    def test_streams(self):
        self.play("every_form")
        log = self.log()
        streams = {s["stream"]: s for s in log["stream_info"]}
        self.assertEqual(len(streams), len(log["stream_info"]))
        stream_of = {e["grid"]: streams[e["stream"]] for e in log.kernels}
        self.assertEqual(stream_of["(101,1,1)"]["kind"], "legacy_default")
        a = stream_of["(102,1,1)"]
        self.assertEqual((a["kind"], a["priority"], a["flags"]), ("created", -1, 1))
        for grid in ("(103,1,1)", "(104,1,1)", "(112,1,1)", "(132,1,1)", "(152,1,1)"):  # ptsz, CU_STREAM_PER_THREAD
            self.assertEqual(stream_of[grid]["kind"], "per_thread_default", grid)
            self.assertEqual(stream_of[grid]["thread"], log.kernels[0]["thread"])
        b = stream_of["(129,1,1)"]  # cooperative multi-device
        self.assertEqual((b["kind"], b["flags"], stream_of["(15,2,1)"]["stream"]), ("created", 0, b["stream"]))
        self.assertNotEqual(a["handle"], b["handle"])

    def test_captured_launches_are_flagged_and_not_counted_as_executed(self):
        played = self.play("every_form")
        log = self.log()
        captured = [e for e in log.kernels if e["captured"]]
        self.assertEqual(len(captured), played.result["launches"]["captured"])
        self.assertGreater(len(captured), 0)
        summed = sum(s["captured"] for s in log["kernel_summary"] if s["session"])
        self.assertEqual(summed, len(captured))
        graphs = log["graph_launch_event"]
        self.assertEqual({g["status"] for g in graphs}, {0})
        self.assertGreater(len({g["graph"] for g in graphs}), 1)

    def test_per_thread_default_streams_of_two_threads_are_two_streams(self):
        plan = {
            "device": {"board": "sm_80"},
            "modules": {"m": {"kernels": {"k": {"name": "k", "duration_us": 1}}}},
            "threads": [{"count": 3, "ops": [
                {"op": "launch", "kernel": "k", "ptsz": True, "grid": 1, "block": 32, "times": 4},
                {"op": "launch", "kernel": "k", "stream": "per_thread", "grid": 2, "block": 32, "times": 4},
                {"op": "launch", "kernel": "k", "grid": 3, "block": 32, "times": 4}, {"op": "barrier"}]}],
        }
        self.play(plan)
        log = self.log()
        own = {}
        for event in log.kernels:
            own.setdefault((event["thread"], event["grid"]), set()).add(event["stream"])
        threads = {thread for thread, _ in own}
        self.assertEqual(len(threads), 3)
        per_thread = [own[thread, "(1,1,1)"] for thread in threads]
        self.assertEqual(len(set.union(*per_thread)), 3)
        for thread in threads:
            self.assertEqual(own[thread, "(1,1,1)"], own[thread, "(2,1,1)"])
        self.assertEqual(len(set.union(*(own[thread, "(3,1,1)"] for thread in threads))), 1)

    def test_carveouts_are_configurations_of_their_own(self):
        ops = [{"op": "launch", "kernel": "k", "form": "ex", "grid": 10 + c, "block": 256, "carveout": c}
               for c in (0, 25, 50, 100)]
        ops.append({"op": "launch", "kernel": "k", "grid": 200, "block": 256})
        for value in (25, 50):
            ops.append({"op": "set_attribute", "kernel": "k", "attribute": "carveout", "value": value})
            ops.append({"op": "launch", "kernel": "k", "grid": 300 + value, "block": 256, "times": 2})
        self.play({"device": {"board": "sm_90"}, "threads": [{"ops": ops}],
                   "modules": {"m": {"kernels": {"k": {"name": "k", "static_shared_bytes": 24576, "duration_us": 1}}}}})
        log = self.log()
        configs = {e["grid"]: (e["config"], e["carveout"], e["occupancy_source"], e["max_active_blocks"])
                   for e in log.kernels}
        self.assertEqual(len({c[0] for c in configs.values()}), 7)
        self.assertEqual(configs["(200,1,1)"][1:3], (None, "driver"))
        self.assertEqual(configs["(35,1,1)"][1:3], (25, "model"))
        self.assertEqual(configs["(325,1,1)"][1:3], (25, "driver"))
        self.assertEqual(configs["(325,1,1)"][3], configs["(35,1,1)"][3])
        self.assertLess(configs["(325,1,1)"][3], configs["(350,1,1)"][3])
        self.assert_balanced(log)

    def test_refused_launches_have_their_status(self):
        played = self.play("errors")
        log = self.log()
        status = {}
        for event in log.kernels:
            key = event["grid"] + event["block"] + str(event["dyn_shared_bytes"])
            status.setdefault(key, []).append(event["status"])
        counted = {}
        for event in log.kernels:
            if event["status"]:
                counted[str(event["status"])] = counted.get(str(event["status"]), 0) + 1
        self.assertEqual(counted, played.result["launch_errors"])
        self.assertEqual(status["(7,1,1)(64,1,1)0"], [700] * 4)  # after the fault
        self.assertEqual(status["(4,1,1)(512,1,1)0"], [701])
        self.assertEqual(status["(100000,1,1)(64,1,1)0"], [720])
        self.assertEqual(status["(32,1,1)(64,1,1)0"], [912])
        self.assertEqual(status["(1,1,1)(64,1,1)0"], [0] * 3)
        self.assertEqual(log.end["failed"], sum(played.result["launch_errors"].values()))
        self.assert_counts(log, played.result)
        self.assert_balanced(log)


class TwoDevices(SimTest):
    def test_a_multi_device_launch_is_one_event_for_each_device(self):
        self.run_host(HOSTS / "hostile_host", "two_devices", GPUFLIGHT_SIM_DEVICE="sm_80",
                      GPUFLIGHT_SIM_DEVICE_COUNT="2")
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual(sorted(d["device"] for d in log["device_info"]), [0, 1])
        streams = {s["stream"]: s for s in log["stream_info"]}
        plain = {e["grid"]: e for e in log.kernels if not e["cooperative"]}
        self.assertEqual((plain["(20,1,1)"]["device"], plain["(21,1,1)"]["device"]), (0, 1))
        self.assertNotEqual(plain["(20,1,1)"]["context"], plain["(21,1,1)"]["context"])
        first, second = [e for e in log.kernels if e["cooperative"]]
        self.assertEqual((first["device"], second["device"]), (0, 1))
        self.assertEqual(first["correlation"], second["correlation"])
        for event, like in ((first, plain["(20,1,1)"]), (second, plain["(21,1,1)"])):
            self.assertEqual((event["name"], event["num_regs"], event["grid"], event["status"]),
                             ("everywhere", 24, "(10,1,1)", 0))
            self.assertEqual(event["context"], like["context"])
            stream = streams[event["stream"]]
            self.assertEqual((stream["kind"], stream["device"], stream["context"]),
                             ("created", event["device"], event["context"]))


class HandleReuse(SimTest):
    def test_every_launch_has_the_facts_of_its_own_kernel(self):
        played = self.play("handle_reuse", "--loops", "3")
        log = self.log()
        self.assert_counts(log, played.result)
        self.assert_balanced(log)
        facts = {f"_Z2k{i}v": (16 << i, (1024, 20480, 0, 40960)[i]) for i in range(4)}
        # The grid says which kernel the player meant, independently of the name in the line.
        meant = {10: 0, 20: 0, 11: 1, 31: 1, 32: 1, 12: 2, 42: 2, 13: 3, 23: 3}
        for event in log.kernels:
            grid = int(event["grid"][1:].split(",")[0])
            self.assertEqual(event["name"], f"_Z2k{meant[grid]}v")
            self.assertEqual((event["num_regs"], event["static_shared_bytes"]), facts[event["name"]], event)
        self.assertEqual({e["carveout"] for e in log.kernels if e["grid"] == "(31,1,1)"}, {30})
        self.assertEqual({e["carveout"] for e in log.kernels if e["grid"] == "(32,1,1)"}, {100})
        # Equal contents are one kernel, under however many handles they came.
        self.assertEqual(log.end["kernels"], 4)

    def test_contexts_are_told_apart(self):
        self.play("handle_reuse")
        contexts = {e["context"] for e in self.log().kernels}
        self.assertEqual(len(contexts), 2)


class HostileNames(SimTest):
    def test_names_of_any_bytes(self):
        played = self.play("hostile_names")
        log = self.log()
        self.assert_counts(log, played.result)
        names = {e["name"] for e in log.kernels}
        self.assertEqual(max(len(n) for n in names), 65536)
        for kernel in played.result["kernels"].values():
            self.assertIn(name_of(kernel), names)
        self.assertTrue(any(b"\xff" in base64.b64decode(k["name_base64"]) for k in played.result["kernels"].values()))
        for line in log.lines:
            line.decode("utf-8")

    def test_a_locale_with_decimal_comma_and_grouping(self):
        locales = SOURCE / ".deps" / "locale"
        if not (locales / "de_DE.UTF-8").exists():
            self.skipTest("no locale: tools/setup.sh makes it")
        options = {"GPUFLIGHT_SIM_DEVICE": "sm_86", "LOCPATH": locales, "LC_ALL": "de_DE.UTF-8"}
        run = self.run_host(HOSTS / "hostile_host", "locale", **options)
        bare = self.run_host(HOSTS / "hostile_host", "locale", preload=False, **options)
        self.assertEqual(run.stdout, b"1234,500 1.234.567\n")  # the host's locale is as the host wants it
        self.assertEqual((run.stdout, run.stderr), (bare.stdout, bare.stderr))
        log = self.log()
        self.assert_balanced(log)
        names = [e["name"] for e in log.kernels]
        self.assertEqual(names[::3], ["n" * 65536, 'a"quoted"\\back\\slash', "tab\there\nline\r\x01\x1b[31m\x7f",
                                      "bad\ufffd\ufffd\ufffd(\ufffdend", "k\u00e9rnel_\u6838",
                                      "1.234,5 %s%n {} ${HOME}"])
        self.assertEqual(len(names), 18)
        for event in log.kernels:
            self.assertEqual((event["grid"], event["occupancy"]), ("(1234567,1,1)", 1.0))
        self.assertIsInstance(log.kernels[0]["waves"], float)


def dims(value):
    return (value, 1, 1) if isinstance(value, int) else tuple(value)


def text(dimensions):
    return "({},{},{})".format(*dimensions)


if __name__ == "__main__":
    main()
