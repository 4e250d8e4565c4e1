#!/usr/bin/env python3
"""The schema must be able to say no, and docs/FORMAT.md must know every key: each golden line is spoilt in every way
that breaks the format, and the validator has to notice each."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import jsonschema  # noqa: E402
import validate_log  # noqa: E402

SCHEMA = json.loads(validate_log.SCHEMA.read_text())
GOLDEN = [json.loads(line) for line in open(ROOT / "tests" / "golden" / "log_lines.ndjson", encoding="utf-8")]
OPTIONAL = {"late", "queue_negative", "unlaunched", "range", "model_blocks", "max_active_clusters", "event_every",
            "event_timed", "event_cost_ns", "launch_error_ns"}
# Keys that a later minor version added to a type: lines of before, without them, stay valid.
LATER = {("graph_launch_event", key) for key in ("start_ns", "end_ns", "duration_ns", "contents", "node_events")}
LATER |= {("kernel_summary", key) for key in ("timed", "replayed", "calls_timed")}
LATER |= {("session_end", key) for key in ("graph_kernels", "unlaunched", "replayed_kernels")}


class Schema(unittest.TestCase):
    open = jsonschema.Draft202012Validator(SCHEMA)
    strict = jsonschema.Draft202012Validator(validate_log.closed(SCHEMA))

    def test_golden_lines_cover_every_type(self):
        types = {name for name in SCHEMA["$defs"] if not name.endswith("_part")}
        self.assertEqual(types, {line["type"] for line in GOLDEN})

    def test_every_missing_key_is_noticed(self):
        for line in GOLDEN:
            for key in line:
                spoilt = {k: v for k, v in line.items() if k != key}
                may_lack = key in OPTIONAL or (line["type"], key) in LATER
                self.assertEqual(self.open.is_valid(spoilt), may_lack, f"{line['type']} without {key}")

    def test_every_value_of_a_wrong_kind_is_noticed(self):
        for line in GOLDEN:
            for key, value in line.items():
                if key == "type":
                    continue
                wrong = [{"x": [1]}, -0.5, "\u0000"] if not isinstance(value, dict) else [1, "x", {"x": 1}]
                for other in wrong:
                    if isinstance(other, str) and isinstance(value, (str, type(None))):
                        continue
                    self.assertFalse(self.open.is_valid({**line, key: other}), f"{line['type']}.{key} = {other!r}")

    def test_unknown_keys_are_skipped_by_readers_but_never_written_by_us(self):
        for line in GOLDEN:
            new = {**line, "brand_new": 1}
            self.assertTrue(self.open.is_valid(new))
            self.assertFalse(self.strict.is_valid(new), line["type"])
        self.assertTrue(self.open.is_valid({"type": "brand_new_event"}))
        self.assertFalse(self.strict.is_valid({"type": "brand_new_event"}))
        self.assertFalse(self.open.is_valid({"typ": "kernel_event"}))

    def test_details_are_there_as_a_whole_or_not_at_all(self):
        whole = next(line for line in GOLDEN if line["type"] == "kernel_event" and "occupancy" in line)
        bare = next(line for line in GOLDEN if line["type"] == "kernel_event" and "occupancy" not in line)
        self.assertTrue(self.open.is_valid(bare))
        for key in set(whole) - set(bare):
            if key not in OPTIONAL:
                self.assertFalse(self.open.is_valid({**bare, key: whole[key]}), key)

    def test_format_document_names_every_type_and_key(self):
        text = (ROOT / "docs" / "FORMAT.md").read_text(encoding="utf-8")
        documented = set(re.findall(r"`([a-z0-9_]+)`", text))
        for line in GOLDEN:
            self.assertIn(line["type"], documented)
            for key in line:
                self.assertIn(key, documented, f"{line['type']}.{key} is not in docs/FORMAT.md")

    def test_examples_in_the_document_are_valid(self):
        text = (ROOT / "docs" / "FORMAT.md").read_text(encoding="utf-8")
        examples = [e for block in re.findall(r"```json\n(.*?)```", text, re.S) for e in block.strip().split("\n")]
        self.assertGreater(len(examples), 8)
        for example in examples:
            error = next(self.strict.iter_errors(json.loads(example)), None)
            self.assertIsNone(error, f"{example[:80]}: {error and error.message}")


class CommandLine(unittest.TestCase):
    def run_on(self, data, suffix=".ndjson", *options):
        with tempfile.NamedTemporaryFile(suffix=suffix) as log:
            log.write(data)
            log.flush()
            return subprocess.run([sys.executable, str(ROOT / "tools" / "validate_log.py"), *options, log.name],
                                  capture_output=True, text=True).returncode

    def test_exit_codes(self):
        good = b'{"type":"scope_event","phase":"mark","scope":null,"thread":1,"seq":1,"time_ns":1}\n'
        self.assertEqual(self.run_on(good), 0)
        self.assertEqual(self.run_on(good[:-1]), 1)  # no line end
        self.assertEqual(self.run_on(good.replace(b"mark", b"park")), 1)
        self.assertEqual(self.run_on(good.replace(b"null", b'"\xff"')), 1)
        self.assertEqual(self.run_on(good.replace(b":1}", b":NaN}")), 1)
        self.assertEqual(self.run_on(good.replace(b'"seq":1', b'"seq":1,"seq":2')), 1)
        self.assertEqual(self.run_on(b""), 1)
        late = b'{"phase":"mark","scope":null,"thread":1,"seq":1,"time_ns":1,"type":"scope_event"}\n'
        self.assertEqual((self.run_on(late), self.run_on(late, ".ndjson", "--strict")), (0, 1))

    def test_compressed(self):
        packed = subprocess.run(["zstd", "-c", str(ROOT / "tests" / "golden" / "log_lines.ndjson")],
                                capture_output=True, check=True).stdout
        self.assertEqual(self.run_on(packed, ".ndjson.zst"), 0)


if __name__ == "__main__":
    unittest.main()
