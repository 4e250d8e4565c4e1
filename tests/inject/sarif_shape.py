"""What SARIF 2.1.0 requires of a log file, as far as ours uses it (sections 3.13, 3.14, 3.18, 3.19, 3.27, 3.49)."""

LEVELS, KINDS = {"none", "note", "warning", "error"}, {"notApplicable", "pass", "fail", "review", "open", "informational"}


def check_sarif(test, sarif):
    """The results, after the required properties and the bounds on their values were checked."""
    test.assertEqual(sarif["version"], "2.1.0")
    test.assertTrue(sarif["$schema"].startswith("https://"))
    (run,) = sarif["runs"]
    driver = run["tool"]["driver"]
    test.assertIsInstance(driver["name"], str)
    ids = [rule["id"] for rule in driver["rules"]]
    test.assertEqual(len(ids), len(set(ids)))
    for rule in driver["rules"]:
        test.assertIsInstance(rule["shortDescription"]["text"], str)
        test.assertIn(rule["defaultConfiguration"]["level"], LEVELS)
    test.assertIsInstance(run["results"], list)
    for result in run["results"]:
        test.assertTrue(result["message"]["text"])
        test.assertEqual(ids[result["ruleIndex"]], result["ruleId"])
        test.assertIn(result["kind"], KINDS)
        test.assertIn(result["level"], LEVELS)
        if result["kind"] != "fail":
            test.assertEqual(result["level"], "none")  # 3.27.10
        for location in result["locations"]:
            physical = location["physicalLocation"]
            test.assertNotIn(" ", physical["artifactLocation"]["uri"])
            test.assertGreaterEqual(physical["region"]["startLine"], 1)
            for logical in location["logicalLocations"]:
                test.assertIsInstance(logical["name"], str)
        for value in result["partialFingerprints"].values():
            test.assertIsInstance(value, str)
    return run["results"]
