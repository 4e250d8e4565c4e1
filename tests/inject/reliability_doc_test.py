#!/usr/bin/env python3
"""Every test that docs/RELIABILITY.md names is there, and every fault in its table names one."""
import pathlib
import re
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = SOURCE / "docs" / "RELIABILITY.md"
# `hostile_host_test.py::test_x`, `log_sink_test.cpp::Suite.Name`; a second test of the same file is `::test_y` alone.
NAMED = re.compile(r"`([\w/]+\.(?:py|cpp|sh))?::([\w.]+)`")


def rows(text):
    """Cells of the table's rows, its heads left out."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 5 and cells[0] != "fault" and set(cells[0]) != {"-"}:
            yield cells


def exists(file, name):
    path = SOURCE / "tests" / ("inject" if file.endswith(".py") else "unit") / file
    if not path.exists():
        return False
    if file.endswith(".py"):
        return re.search(rf"^ +def {name}\(self", path.read_text(), re.MULTILINE) is not None
    suite, test = name.split(".")
    return re.search(rf"^TEST(_F|_P)?\({suite}, {test}\)", path.read_text(), re.MULTILINE) is not None


class Document(unittest.TestCase):
    def test_every_fault_names_tests_that_exist(self):
        table = list(rows(DOCUMENT.read_text()))
        self.assertGreater(len(table), 40)
        missing = []
        for fault, *_, tests in table:
            named = NAMED.findall(tests)
            if not named:
                missing.append(f"{fault}: no test is named")
            file = None
            for next_file, name in named:
                file = next_file or file
                if file is None or not exists(file, name):
                    missing.append(f"{fault}: {file}::{name}")
        self.assertEqual(missing, [])

    def test_a_name_that_is_wrong_is_found(self):
        self.assertFalse(exists("hostile_host_test.py", "test_that_is_not_there"))
        self.assertFalse(exists("not_there_test.py", "test_x"))
        self.assertFalse(exists("log_sink_test.cpp", "LogSinkTest.NotThere"))
        self.assertTrue(exists("reliability_doc_test.py", "test_a_name_that_is_wrong_is_found"))


if __name__ == "__main__":
    unittest.main()
