#!/usr/bin/env python3
"""Checks who includes whom. The table stands in docs/ARCHITECTURE.md too; moving a border needs a reason there.

    tools/check_layers.py [ROOT]
    tools/check_layers.py --self-test      (violations, planted on purpose, must be found)
"""
import pathlib
import re
import sys
import tempfile

# Folder: the folders it may include beside itself. "gpuflight" is include/gpuflight, the public API.
MAY_INCLUDE = {
    "include/gpuflight": set(),
    "src/event": set(),
    "src/config": {"event"},
    "src/occupancy": {"event"},
    "src/flight": {"event"},
    "src/log": {"event"},
    "src/hooks": set(),
    "src/capture": {"event", "occupancy", "flight", "hooks"},
    "src/recorder": {"capture", "flight", "log", "config", "event"},
    "src/sim": {"event", "config"},
    "src/inject": {"recorder", "gpuflight"},
    "src/analysis": {"event", "occupancy", "log", "flight"},
    "src/report": {"analysis", "event"},
    "tools/gpuflight": {"report", "analysis", "log", "flight", "occupancy", "config", "event"},
}
# Headers of CUDA, CUPTI, NVML and NVTX: which folders may include which.
VENDOR_HEADER = re.compile(r"(cuda|cupti|nvml|nvtx|nvToolsExt|generated_|driver_types|vector_types|builtin_types)")
VENDOR_ALLOWED = {
    "src/capture": re.compile(r".*"),
    "src/sim": re.compile(r".*"),
    "src/occupancy": re.compile(r"cuda_occupancy\.h$"),
}
SOURCE_SUFFIXES = {".h", ".hpp", ".cpp", ".c", ".cc", ".cu", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
OURS = {path.rsplit("/", 1)[1] for path in MAY_INCLUDE if path.startswith("src/")} | {"gpuflight"}


def violations_of(folder, root):
    own = folder.rsplit("/", 1)[1]
    allowed = MAY_INCLUDE[folder] | {own}
    if folder == "tools/gpuflight":  # its own headers are included by bare name, never as gpuflight/...
        allowed.discard("gpuflight")
    for source in sorted((root / folder).rglob("*")):
        if source.suffix not in SOURCE_SUFFIXES:
            continue
        text = source.read_text(errors="replace")
        for match in INCLUDE.finditer(text):
            header = match.group(2)
            where = f"{source.relative_to(root)}:{text.count(chr(10), 0, match.start(2)) + 1}"
            first = header.split("/")[0] if "/" in header else None
            if first in OURS and first not in allowed:
                yield f"{where}: {folder} may not include {header} (it may include {', '.join(sorted(allowed))})"
            elif header.startswith("../"):
                yield f"{where}: {header}: includes start at src/ or include/"
            elif match.group(1) == "<" or first is None:
                if VENDOR_HEADER.match(header) and not (source.parent / header).exists():
                    permitted = VENDOR_ALLOWED.get(folder)
                    if permitted is None or not permitted.match(header):
                        yield f"{where}: {folder} may not include {header}: CUDA and its like stay in src/capture"


def check(root):
    wrong = []
    for folder in MAY_INCLUDE:
        wrong += violations_of(folder, root)
    for part in sorted((root / "src").iterdir()):
        if part.is_dir() and f"src/{part.name}" not in MAY_INCLUDE:
            wrong.append(f"src/{part.name}: not in the table of who may include whom")
    return wrong


def self_test():
    planted = {
        "src/event/a.h": ('#include "config/b.h"', True),
        "src/config/b.h": ('#include "event/a.h"', False),
        "src/occupancy/c.h": ("#include <cuda_occupancy.h>", False),
        "src/occupancy/d.cpp": ("#include <cuda.h>", True),
        "src/capture/e.cpp": ("#include <cupti.h>\n#include <nvml.h>", False),
        "src/capture/f.h": ('\n  #  include "recorder/x.h"', True),
        "src/recorder/g.cpp": ("#include <cupti.h>", True),
        "src/recorder/h.cpp": ('#include "cupti_activity.h"', True),
        "src/inject/i.cpp": ('#include "capture/x.h"', True),
        "src/inject/j.cpp": ('#include <gpuflight/gpuflight.h>\n#include "recorder/x.h"', False),
        "src/log/k.cpp": ('#include "../flight/x.h"', True),
        "src/analysis/l.cpp": ('#include "sim/x.h"', True),
        "src/unheard/m.cpp": ("", True),
        "tools/gpuflight/n.cpp": ('#include "capture/x.h"', True),
        "tools/gpuflight/o.cpp": ('#include "report/x.h"\n#include "verbs.h"\n#include <vector>', False),
        "include/gpuflight/p.h": ('#include "event/a.h"', True),
    }
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, (text, _) in planted.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text + "\n")
        wrong = check(root)
        for name, (_, bad) in planted.items():
            key = name if not name.startswith("src/unheard") else "src/unheard"
            found = any(line.startswith(key) for line in wrong)
            if found != bad:
                failures += 1
                print(f"self-test: {name}: {'not found' if bad else 'reported without reason'}")
    print(f"check_layers self-test: {len(planted) - failures} passed, {failures} failed")
    return 1 if failures else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    wrong = check(root)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"check_layers: {'FAILED, ' + str(len(wrong)) + ' violations' if wrong else 'ok'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
