#!/usr/bin/env python3
"""Compiles (-fsyntax-only) src/capture against CUPTI's headers of several CUDA releases: the table of
offsets in src/capture/activity_layout.cpp asserts where every field lies in each struct that a header has.

    tools/check_cupti_headers.py [--compiler CXX] [--headers FOLDER]
    tools/check_cupti_headers.py --self-test [...]      (a wrong offset, planted on purpose, must be found)
    tools/check_cupti_headers.py --unpack WHEELS FOLDER (headers out of wheels: tools/setup.sh)

Ends with 77, skipped, where the headers are not there. The releases stand in tools/cupti_headers.txt.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What knows CUPTI's records, and what else names things of cuda.h and cupti.h that come and go.
SOURCES = ["activity_layout.cpp", "activity_source.cpp", "activity_api.cpp", "cupti_source.cpp", "watched_calls.cpp",
           "driver_api.cpp", "kernel_resolver.cpp", "launch_recorder.cpp", "device_query.cpp"]
SKIPPED = 77


def releases():
    lines = (ROOT / "tools" / "cupti_headers.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def compile_against(compiler, headers, source):
    """The compiler's complaints, and CUPTI headers that came from somewhere else; empty: all well."""
    with tempfile.TemporaryDirectory() as scratch:
        depends = pathlib.Path(scratch) / "depends"
        run = subprocess.run(
            [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-MD", "-MF", depends,
             "-I", ROOT / "src", "-isystem", headers, source], capture_output=True, text=True)
        if run.returncode != 0:
            return run.stderr or f"{compiler} ended with {run.returncode}"
        # A header missing from the package must not be found in a toolkit of this machine.
        used = depends.read_text().replace("\\\n", " ").split()
    strangers = [path for path in used if pathlib.Path(path).name.startswith("cupti") and path.endswith(".h")
                 and not {headers, ROOT / "src"} & set(pathlib.Path(path).parents)]
    return "\n".join(f"{path}: not of the release" for path in strangers)


def check(compiler, folder):
    failed = False
    for release in releases():
        for name in SOURCES:
            complaints = compile_against(compiler, folder / release, ROOT / "src" / "capture" / name)
            print(f"CUDA {release}: {name}: {'FAILED' if complaints else 'ok'}")
            if complaints:
                print(complaints, file=sys.stderr)
                failed = True
    return 1 if failed else 0


def self_test(compiler, folder):
    text = (ROOT / "src" / "capture" / "activity_layout.cpp").read_text()
    for right, wrong in ((".correlation = 92", ".correlation = 88"), (".value = 4", ".value = 8"),
                         (".destination_device = 52", ".destination_device = 56"), ("kHtoD, CUPTI", "kDtoH, CUPTI")):
        if text.count(right) != 1:
            print(f"self-test: \"{right}\" is not once in activity_layout.cpp", file=sys.stderr)
            return 1
        with tempfile.TemporaryDirectory() as scratch:
            planted = pathlib.Path(scratch) / "activity_layout.cpp"
            planted.write_text(text.replace(right, wrong))
            complaints = compile_against(compiler, folder / releases()[-1], planted)
        if "static assertion failed" not in complaints and "static_assert" not in complaints:
            print(f"self-test: \"{wrong}\" was not found: {complaints}", file=sys.stderr)
            return 1
    print("check_cupti_headers: self-test ok")
    return 0


def unpack(wheels, folder):
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                before, found, name = member.partition("/include/")
                if not found or not name or member.endswith("/") or ".." in name:
                    continue
                to = folder / name
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(archive.read(member))
    return 0 if (folder / "cupti.h").exists() and (folder / "cuda.h").exists() else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default=shutil.which("c++") or "c++")
    parser.add_argument("--headers", type=pathlib.Path, default=ROOT / ".deps" / "cupti_headers")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--unpack", nargs=2, type=pathlib.Path, metavar=("WHEELS", "FOLDER"))
    arguments = parser.parse_args()
    if arguments.unpack:
        return unpack(*arguments.unpack)
    missing = [r for r in releases() if not (arguments.headers / r / "cupti.h").exists()]
    if missing:
        print(f"skipped: CUPTI's headers of CUDA {', '.join(missing)} are not in {arguments.headers}; "
              "tools/setup.sh fetches them, where a package index can be reached")
        return SKIPPED
    headers = arguments.headers.resolve()
    return (self_test if arguments.self_test else check)(arguments.compiler, headers)


if __name__ == "__main__":
    sys.exit(main())
