"""Tests of `gpuflight report --html` in headless Chromium: the page loads and asks nobody for anything, its numbers are
those of report, analyze and explain, the table sorts, the timeline zooms, its text can be read, and no name breaks out
of it."""
import json
import re
import sys
import unittest

import browser
import page_log
from cli_support import FolderTest, tool, write_log

SKIPPED = 77  # ctest shows it as skipped

HOSTILE = ["</script><script>window.broken=1</script>", "<img src=x onerror='window.broken=2'>", "<!--<script>",
           "]]></textarea></style><b id=broken>", "\u2028\u2029'\"\\`${window.broken=3}", "&lt;script&gt;",
           "javascript:window.broken=4"]

# Text and what is behind it, as WCAG reckons their contrast; of the elements that a selector names.
CONTRAST = """
(() => {
  const part = c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const out = [];
  for (const selector of SELECTORS) {
    const node = document.querySelector(selector);
    if (!node) { out.push([selector, null, null]); continue; }
    const a = light(rgb(getComputedStyle(node).color)), b = light(behind(node));
    out.push([selector, (Math.max(a, b) + .05) / (Math.min(a, b) + .05), parseFloat(getComputedStyle(node).fontSize)]);
  }
  return out;
})()
"""
TEXTS = ["h1", "h2", "#facts", "nav a", ".tile .name", ".tile .value", ".tile .more", ".finding p", ".severity",
         ".rule", ".cost", ".finding summary", "#timeline-note", "#timeline-tools button", ".legend span", "th button",
         "td.name button", "td.num", ".choices .what", ".choices .small", ".limit", ".limit.binds", ".advice li",
         ".advice .from", ".chart h4", ".chart p", "#losses-body li", "#copies-body td"]


class PageTest(FolderTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser(browser.find())
        cls.addClassCleanup(cls.browser.close)

    def page(self, *logs):
        path = self.folder / "page.html"
        done = tool("report", "--html", path, *logs)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("page.html", done.stderr)
        self.assertEqual(done.stdout, "")
        self.browser.problems.clear()
        self.browser.open(path)
        self.assertEqual(self.browser.problems, [])
        self.assertEqual(self.browser.run("document.body.dataset.ready"), "yes")
        self.assertEqual([url for url in self.browser.requests if not url.startswith(("file://", "data:"))], [])
        self.assertEqual(sum(url.startswith("file://") for url in self.browser.requests), 1)
        return path

    def training(self, **changes):
        return page_log.training(self.folder / "train.ndjson", **changes)

    def values(self, selector):
        """data-value of the elements, as numbers where they are."""
        texts = self.browser.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.dataset.value)")
        return [float(t) if t is not None and re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", t) else t for t in texts]

    def view(self):
        self.browser.settle()
        data = self.browser.run("({...document.getElementById('timeline-canvas').dataset})")
        return float(data["from"]), float(data["to"])

    def focus_timeline(self):
        self.browser.run("document.getElementById('timeline-canvas').focus()")


class Numbers(PageTest):
    def setUp(self):
        super().setUp()
        self.log = self.training(lost=7)
        self.page(self.log)
        self.report = json.loads(tool("report", "--json", self.log).stdout)

    def test_embedded_numbers_are_those_of_the_verbs(self):
        def embedded(name):
            return json.loads(self.browser.run(f"document.getElementById('data-{name}').textContent"))
        self.assertEqual(embedded("report"), self.report)
        self.assertEqual(embedded("findings"), json.loads(tool("analyze", "--json", self.log).stdout))
        explained = json.loads(tool("explain", "--all", "--json", self.log).stdout)
        occupancy = embedded("occupancy")
        curves = []
        for kernel in occupancy["kernels"]:
            curves.append(kernel.pop("curves"))
            kernel.pop("short_name")
            kernel.pop("words")
        self.assertEqual(occupancy, explained)
        _, regs, block, static, dynamic, _, _ = page_log.KERNELS["gemm"]
        asked = tool("occupancy", "--arch", "sm_90", "--regs", regs, "--block", block, "--smem", static, "--dynamic",
                     dynamic, "--json")
        self.assertEqual([c["over"] for c in curves[0]], ["block", "regs", "smem"])
        points = [[(p["x"], p["max_active_blocks"], p["occupancy"]) for p in c["points"]] for c in curves[0]]
        wanted = [[(p["x"], p["max_active_blocks"], p["occupancy"]) for p in c["points"]]
                  for c in json.loads(asked.stdout)["boards"][0]["curves"]]
        self.assertEqual(points, wanted)

    def test_tiles(self):
        totals, device = self.report["totals"], self.report["device_times"][0]
        log = self.report["logs"][0]
        for tile, value in (("duration", log["duration_ns"]), ("launches", totals["launches"]),
                            ("gpu", totals["gpu"]["total_ns"]), ("busy", device["busy_ns"]),
                            ("idle", device["idle_ns"]),
                            ("overlap", device["copy_beside_kernel_ns"]), ("lost", 7),
                            ("copied", sum(c["bytes"] for c in self.report["copies"]))):
            self.assertEqual(self.values(f"#tile-{tile}"), [value], tile)

    def test_rows_of_kernels(self):
        groups = self.report["groups"]
        columns = {"share": lambda g: g["time_share"], "launches": lambda g: g["launches"],
                   "total": lambda g: g["gpu"]["total_ns"], "mean": lambda g: g["gpu"]["mean_ns"],
                   "median": lambda g: g["gpu"]["median_ns"], "p95": lambda g: g["gpu"]["p95_ns"],
                   "max": lambda g: g["gpu"]["max_ns"], "queue": lambda g: g["queue"]["mean_ns"],
                   "occupancy": lambda g: g["occupancy"], "regs": lambda g: g["num_regs"]["max"],
                   "block": lambda g: g["block_threads"]["max"], "limiter": lambda g: g["limiting_resource"],
                   "name": lambda g: g["name"]}
        self.assertEqual(len(groups), len(page_log.KERNELS))
        for column, of in columns.items():
            self.assertEqual(self.values(f"#kernel-table td[data-key={column}]"), [of(g) for g in groups], column)

    def test_what_is_shown_reads_as_in_the_text_of_report(self):
        text = tool("report", "--width", "250", self.log).stdout
        first = next(line for line in text.splitlines() if "flash_forward" in line)
        row = self.browser.run("[...document.querySelectorAll('#kernel-table tr')].map(r => r.innerText)"
                               ".find(t => t.includes('flash_forward'))").split()
        for shown in re.findall(r"[\d.]+ [mun]?s\b", first)[:4]:
            self.assertIn(shown, " ".join(row))

    def test_findings_are_those_of_analyze(self):
        found = json.loads(tool("analyze", "--json", self.log).stdout)["findings"]
        self.assertGreater(len(found), 0)
        shown = self.browser.run("[...document.querySelectorAll('.finding')].map(f => [f.dataset.rule, f.innerText])")
        self.assertEqual([rule for rule, _ in shown], [f["rule"] for f in found])
        for (_, text), finding in zip(shown, found):
            self.assertIn(finding["message"], text)
            self.assertIn(finding["remedy"], text)

    def test_occupancy_limits_and_the_row_that_leads_there(self):
        kernels = json.loads(tool("explain", "--all", "--json", self.log).stdout)["kernels"]
        for kernel in (kernels[0], kernels[-1]):
            label = json.dumps(kernel["label"])
            self.browser.run(f"document.querySelector('tr[data-label={label}] button').click()")
            self.assertEqual(self.browser.run("document.getElementById('kernel-panel').dataset.label"), kernel["label"])
            limits = {k: v for k, v in kernel["now"]["limit_blocks"].items() if v is not None}
            shown = self.browser.run("[...document.querySelectorAll('#kernel-panel .limit')]"
                                     ".map(l => [l.dataset.limit, Number(l.dataset.value)])")
            self.assertEqual(dict(shown), limits)
            binds = self.browser.run("[...document.querySelectorAll('.limit.binds')].map(l => l.dataset.limit)")
            self.assertEqual(sorted(binds), sorted(kernel["now"]["limiting_resources"]))
            self.browser.settle()
            self.assertEqual(self.browser.run("document.querySelectorAll('#kernel-panel .uplot canvas').length"), 3)
        self.assertEqual(self.browser.problems, [])

    def test_losses(self):
        self.assertIn("7 events lost: pool empty", self.browser.run("document.getElementById('losses').innerText"))
        ledger = self.report["logs"][0]["ledger"]
        for key in ("seen", "written", "pending", "lost_total"):
            self.assertEqual(self.values(f"td[data-key=ledger-{key}]"), [ledger[key]], key)


class Using(PageTest):
    def test_the_table_sorts_and_filters(self):
        self.page(self.training(steps=12))
        for column in ("total", "launches", "occupancy", "name"):
            cells = f"#kernel-table td[data-key={column}]"
            head = "[...document.querySelectorAll('#kernel-table th')]"
            at = self.browser.run(f"[...document.querySelector('{cells}').parentNode.children]"
                                  f".findIndex(c => c.dataset.key === '{column}')")
            for order in ("first", "second"):
                self.browser.run(f"{head}[{at}].querySelector('button').click()")
                said, shown = self.browser.run(f"{head}[{at}].getAttribute('aria-sort')"), self.values(cells)
                wanted = sorted(shown, key=lambda v: v.lower() if isinstance(v, str) else v,
                                reverse=said == "descending")
                self.assertEqual(shown, wanted, (column, order))
                self.assertGreater(len(set(shown)), 1)
            self.assertEqual(said, "descending" if column == "name" else "ascending")
        self.browser.run("(() => { const f = document.getElementById('kernel-filter'); f.value = 'FLASH'; "
                         "f.dispatchEvent(new Event('input')); })()")
        self.assertEqual(len(self.values("#kernel-table td[data-key=name]")), 1)
        self.assertIn("1 of 6", self.browser.run("document.getElementById('kernel-count').textContent"))

    def test_the_timeline_zooms_and_moves_by_keys_wheel_drag_and_buttons(self):
        self.page(self.training(steps=12))
        whole = self.view()
        self.focus_timeline()
        self.browser.key("+")
        near = self.view()
        self.assertAlmostEqual((near[1] - near[0]) * 2, whole[1] - whole[0], delta=1)
        self.assertAlmostEqual(sum(near), sum(whole), delta=4)
        self.browser.key("ArrowRight")
        right = self.view()
        self.assertAlmostEqual(right[0] - near[0], (near[1] - near[0]) * .2, delta=1)
        self.browser.key("ArrowLeft")
        self.assertAlmostEqual(self.view()[0], near[0], delta=1)
        self.browser.key("-")
        self.browser.key("-")  # no further than all of it
        out = self.view()
        self.assertLess(out[1] - out[0], (whole[1] - whole[0]) * 1.03)
        self.browser.key("0")
        self.assertEqual(self.view(), whole)
        self.browser.run("document.getElementById('timeline').scrollIntoView()")
        box = self.browser.run("(({x, y, width, height}) => ({x, y, width, height}))"
                               "(document.getElementById('timeline-canvas').getBoundingClientRect())")
        x, y = box["x"] + box["width"] * .6, box["y"] + 45
        self.focus_timeline()
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-150)
        wheeled = self.view()
        self.assertLess(wheeled[1] - wheeled[0], (whole[1] - whole[0]) * .7)
        self.browser.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.browser.mouse("mouseMoved", x - 100, y, button="left", buttons=1)
        self.browser.mouse("mouseReleased", x - 100, y, button="left", clickCount=1)
        dragged = self.view()
        self.assertGreater(dragged[0], wheeled[0])
        self.assertAlmostEqual(dragged[1] - dragged[0], wheeled[1] - wheeled[0], delta=1)
        self.browser.run("document.querySelector('#timeline-tools button:last-child').click()")
        self.assertEqual(self.view(), whole)

    def test_what_is_under_the_mouse_is_told(self):
        log = self.training(steps=2)
        self.page(log)
        launches = [json.loads(line) for line in log.read_text().splitlines()]
        one = next(line for line in launches if line["type"] == "kernel_event" and "Gemm" in line["name"])
        self.browser.run("document.getElementById('timeline').scrollIntoView()")
        self.browser.run(f"timeline.goto({one['start_ns']}, 0)")
        start, end = self.view()
        middle = (one["start_ns"] + min(one["end_ns"], end)) / 2
        box = self.browser.run("(({x, y, width}) => ({x, y, width}))"
                               "(document.getElementById('timeline-canvas').getBoundingClientRect())")
        x = box["x"] + 178 + (middle - start) / (end - start) * (box["width"] - 178)
        self.browser.mouse("mouseMoved", x, box["y"] + 26 + 15)
        self.assertEqual(self.browser.run("document.getElementById('timeline-canvas').dataset.hover"),
                         "cutlass::Kernel<DeviceGemm>")
        told = self.browser.run("document.getElementById('timeline-hover').innerText")
        for fact in ("168", "264 blocks", "(256,1,1)", "12.5%", f"{one['start_ns'] / 1e9:.9f} s"):
            self.assertIn(fact, told)

    def test_text_can_be_read_in_both_schemes_and_nothing_sticks_out(self):
        self.page(self.training(steps=12, lost=3))
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            self.browser.settle()
            for selector, contrast, size in self.browser.run(CONTRAST.replace("SELECTORS", json.dumps(TEXTS))):
                self.assertIsNotNone(contrast, selector)
                self.assertGreaterEqual(contrast, 4.5, (scheme, selector))
                self.assertGreaterEqual(size, 12, (scheme, selector))
        backs = set()
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            backs.add(self.browser.run("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(backs), 2)
        self.browser.scheme("light")
        for width, height in ((1366, 768), (1920, 1080), (800, 600)):
            self.browser.resize(width, height)
            self.browser.settle()
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
        self.browser.resize(1366, 768)
        self.assertEqual(self.browser.problems, [])


class Limits(PageTest):
    def test_names_do_not_break_out_of_the_page(self):
        names = {f"k{i}": (text, 32 + i, 256, 0, 0, 64, 9_000) for i, text in enumerate(HOSTILE)}
        names.update({key: names["k0"] for key in page_log.KERNELS if key not in names})
        facts = list(page_log.KERNELS)
        for key, hostile in zip(facts, HOSTILE):
            names[key] = (hostile, *page_log.KERNELS[key][1:])
        log = self.training(steps=6, names=names)
        text = log.read_text().replace('"args":["train"', '"args":[' + json.dumps(HOSTILE[0]))
        log.write_text(text.replace('"host":"node17"', '"host":' + json.dumps(HOSTILE[1])))
        page = self.page(log)
        self.assertIsNone(self.browser.run("window.broken || null"))
        self.assertIsNone(self.browser.run("document.getElementById('broken')"))
        self.assertEqual(self.browser.run("document.images.length"), 0)
        shown = self.values("#kernel-table td[data-key=name]")
        for hostile in HOSTILE[:len(facts)]:
            self.assertIn(hostile, shown)
        self.assertIn(HOSTILE[0], self.browser.run("document.getElementById('program').textContent"))
        own = page.read_text(encoding="utf-8")
        self.assertNotIn("window.broken=1</script>", own)
        self.browser.run("[...document.querySelectorAll('.choices button, th button, summary')]"
                         ".forEach(b => b.click())")
        self.assertIsNone(self.browser.run("window.broken || null"))
        self.assertEqual(self.browser.problems, [])

    def test_more_work_than_is_drawn_one_by_one(self):
        log = write_log(self.folder / "long.ndjson", "--steps", 40_000, "--segment", 1 << 30)
        page = self.page(log)
        self.assertLess(page.stat().st_size, 16 << 20)
        packed = json.loads(self.browser.run("document.getElementById('data-timeline').textContent"))
        self.assertEqual(packed["seen"], 40_000 * 6 + 40_000 // 10 * 2)  # 2 kernels, 2 copies, a fill, a wait; nodes
        self.assertLessEqual(packed["drawn"], 200_000)
        self.assertGreater(packed["drawn"], 50_000)
        note = self.browser.run("document.getElementById('timeline-note').textContent")
        self.assertIn("248,000", note)
        self.assertIn(f"{packed['drawn']:,}", note)
        # Merged or not, the same work is on the tracks: 50 us of kernels, 42 of copies and fills, 6 and 4 more.
        busy = self.browser.run(
            "(() => { const raw = atob(JSON.parse(document.getElementById('data-timeline').textContent).busy);"
            " const a = new Uint8Array(raw.length); for (let i = 0; i < raw.length; ++i) a[i] = raw.charCodeAt(i);"
            " return new Float32Array(a.buffer).reduce((x, y) => x + y, 0); })()")
        self.assertAlmostEqual(busy, 40_000 * (60_000 + 42_000 + 6_000) + 4_000 * 4_000, delta=1e6)
        # A frame has no more steps than pixels, at every zoom.
        width = self.browser.run("document.getElementById('timeline-canvas').clientWidth")
        tracks = len(packed["tracks"])
        self.focus_timeline()
        for _ in range(12):
            self.browser.key("+")
            boxes = int(self.browser.run("document.getElementById('timeline-canvas').dataset.boxes"))
            self.assertGreater(boxes, 0)
            self.assertLessEqual(boxes, 2 * width * tracks)
        self.assertEqual(self.browser.problems, [])

    def test_a_log_without_times_and_two_ranks(self):
        plain = write_log(self.folder / "plain.ndjson", "--events", 40, "--no-end")
        self.page(plain)
        text = self.browser.run("document.body.innerText")
        self.assertIn("No times in this log", text)
        self.assertIn("the log has no end", text)
        self.assertEqual(self.values("#tile-launches"), [40])
        ranks = [page_log.training(self.folder / f"rank{i}.ndjson", steps=4, pid=100 + i, rank={"RANK": str(i)},
                                   t0_ns=i * 1_000_000) for i in range(2)]
        self.page(*ranks)
        report = json.loads(tool("report", "--json", *ranks).stdout)
        self.assertEqual(self.values("#tile-launches"), [report["totals"]["launches"]])
        self.assertEqual(self.browser.run("document.querySelectorAll('.device').length"), 2)
        packed = json.loads(self.browser.run("document.getElementById('data-timeline').textContent"))
        self.assertEqual({track["log"] for track in packed["tracks"]}, {0, 1})

    def test_the_same_log_makes_the_same_page(self):
        log = self.training(steps=3)
        pages = [tool("report", "--html", "-", log).stdout for _ in range(2)]
        self.assertEqual(pages[0], pages[1])
        self.assertTrue(pages[0].startswith("<!DOCTYPE html>"))
        self.assertIn("The MIT License", pages[0])


class Errors(FolderTest):
    def test_errors(self):
        log = write_log(self.folder / "a.ndjson", "--events", 4)
        for other in (["--json"], ["--csv"], ["--by", "config"]):
            done = tool("report", "--html", self.folder / "x.html", *other, log)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertFalse((self.folder / "x.html").exists())
        done = tool("report", "--html", self.folder / "no" / "x.html", log)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write", done.stderr)
        done = tool("report", "--html", self.folder / "x.html", self.folder / "missing.ndjson")
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    probe = tool("report", "--html", "-", "/dev/null")
    if "built without uPlot" in probe.stderr:
        print("skipped: " + probe.stderr.strip())
        sys.exit(SKIPPED)
    if browser.find() is None:
        print("skipped: no chromium (tools/setup.sh installs it where the distribution has it)")
        sys.exit(SKIPPED)
    unittest.main()
