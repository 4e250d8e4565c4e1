"""analyze on pairs of logs: of each rule a bad one, on which that rule fires and no other, and a good one, on which
none does.

Pairs are made from plain timelines (tests/analyze/pairs.py) for every rule there is, and taken, recorded or made by
hand, from tests/analyze/pairs and tests/analyze/logs: RULE_bad.ndjson, RULE_good.ndjson, also .ndjson.zst; of
several logs RULE_bad.r0.ndjson, RULE_bad.r1.ndjson ... Put a file there and it is tested.
"""
import json
import pathlib
import re
import sys
import unittest

from cli_support import SOURCE, FolderTest, tool

sys.path.insert(0, str(SOURCE / "tests" / "analyze"))
import pairs  # noqa: E402

NAME = re.compile(r"(.+)_(bad|good)(\..+)?\.ndjson(\.zst)?$")


def rules():
    return [rule["name"] for rule in json.loads(tool("analyze", "--list-rules", "--json").stdout)["rules"]]


def kept_logs():
    """{(folder, rule, "bad" or "good"): [logs]}"""
    found = {}
    for folder in ("pairs", "logs"):
        for path in sorted((SOURCE / "tests" / "analyze" / folder).glob("*")):
            name = NAME.match(path.name)
            if name:
                found.setdefault((folder, name[1], name[2]), []).append(path)
    return found


class Pairs(FolderTest):
    def check(self, rule, word, logs):
        done = tool("analyze", "--json", *logs)
        self.assertEqual(done.returncode, 0, done.stderr)
        findings = json.loads(done.stdout)["findings"]
        self.assertEqual({f["rule"] for f in findings}, {rule} if word == "bad" else set(),
                         f"{word} log of {rule}: " + "; ".join(f"{f['rule']}: {f['message']}" for f in findings))
        for finding in findings:
            self.check_finding(finding)

    def check_finding(self, finding):
        """What stands in every finding, and that its evidence is where it says."""
        for words in (finding["message"], finding["remedy"], finding["cost_how"], finding["source"]):
            self.assertTrue(words)
            self.assertNotIn("{", words)
        self.assertIn(finding["severity"], ("info", "warning", "critical"))
        self.assertEqual(finding["cost_ns"] is None, finding["cost_kind"] == "none")
        if finding["cost_ns"] is not None:
            self.assertGreater(finding["cost_ns"], 0)
        self.assertTrue(1 <= len(finding["evidence"]) <= 5)
        self.assertGreaterEqual(finding["evidence_total"], len(finding["evidence"]))
        for event in finding["evidence"]:
            if event["file"].endswith(".ndjson"):
                line = pathlib.Path(event["file"]).read_text().splitlines()[event["line"] - 1]
                self.assertIn(event["seq"], (json.loads(line).get("seq"), json.loads(line).get("event")))

    def test_each_rule_has_a_pair(self):
        self.assertEqual(set(rules()), set(pairs.PAIRS))

    def test_made_pairs(self):
        for rule in pairs.PAIRS:
            for word in ("bad", "good"):
                with self.subTest(rule=rule, log=word):
                    self.check(rule, word, pairs.write(rule, word == "bad", self.folder))

    def test_kept_pairs(self):
        for (folder, rule, word), logs in kept_logs().items():
            with self.subTest(folder=folder, rule=rule, log=word):
                self.assertIn(rule, pairs.PAIRS)
                self.check(rule, word, logs)

    def test_only_its_own_rule_finds_it(self):
        """What a bad log is found for goes away with the rule, and stays with the rule alone."""
        for rule in pairs.PAIRS:
            with self.subTest(rule=rule):
                logs = pairs.write(rule, True, self.folder)
                alone = json.loads(tool("analyze", "--json", "--rules", rule, *logs).stdout)["findings"]
                without = json.loads(tool("analyze", "--json", "--skip", rule, *logs).stdout)["findings"]
                self.assertEqual({f["rule"] for f in alone}, {rule})
                self.assertNotIn(rule, {f["rule"] for f in without} | {r for f in without for r in f["explains"]})


if __name__ == "__main__":
    unittest.main(verbosity=2)
