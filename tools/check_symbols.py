#!/usr/bin/env python3
"""Checks what a built libgpuflight.so asks of the process that loads it and what it shows there.

    tools/check_symbols.py build/release/lib/libgpuflight.so
    tools/check_symbols.py --self-test      (each fault, built on purpose, must be found)
"""
import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys
import tempfile

ALLOWED_NEEDED = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux*.so.*")
EXPORTS = ("InitializeInjection", "InitializeInjectionNvtx2", "gpuflight_*")
GLIBC_LIMIT = "2.28"


def readelf(*args):
    return subprocess.run(["readelf", "--wide", *args], check=True, capture_output=True, text=True,
                          env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout


def version_key(text):
    return tuple(int(part) for part in text.split("."))


def dynamic_symbols(library):
    """(binding, section, name, version or None) of each dynamic symbol."""
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        # A visibility note like [VARIANT_PCS] may stand before the section.
        name, _, version = fields[7].replace("@@", "@").partition("@") if not fields[6].startswith("[") else \
            fields[8].replace("@@", "@").partition("@")
        yield fields[4], fields[6], name, version or None


def check(library, exports=EXPORTS, limit=GLIBC_LIMIT, undefined=()):
    """Lines saying what is wrong, and lines saying what was found."""
    wrong, found = [], []
    dynamic = readelf("--dynamic", library)

    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    for name in needed:
        if not any(fnmatch.fnmatch(name, allowed) for allowed in ALLOWED_NEEDED):
            wrong.append(f"needs {name}: only libc and its parts may be needed")
    found.append("needs " + " ".join(needed))

    if "(TEXTREL)" in dynamic or re.search(r"\(FLAGS\).*\bTEXTREL\b", dynamic):
        wrong.append("has text relocations")
    flags = " ".join(re.findall(r"\(FLAGS_1\)(.*)", dynamic))
    if "NODELETE" not in flags:
        wrong.append("is not marked NODELETE: it could be unloaded under its own threads")
    if "NOW" not in flags and "BIND_NOW" not in dynamic:
        wrong.append("is not marked NOW: a missing symbol would be found in the middle of the host's run")
    stack = re.search(r"GNU_STACK(?:\s+0x[0-9a-f]+){5}\s+(\w+)", readelf("--program-headers", library))
    if stack and "E" in stack.group(1):
        wrong.append("asks for an executable stack")

    shown, highest = [], {}
    for binding, section, name, version in dynamic_symbols(library):
        if binding == "UNIQUE":
            wrong.append(f"{name} is GNU_UNIQUE: it would merge with the host's and pin the library")
        if section == "UND":
            if version and version.startswith("GLIBC_"):
                number = version.split("_")[1]
                if number != "PRIVATE":
                    highest.setdefault(number, []).append(name)
            elif binding == "GLOBAL" and not version and not any(fnmatch.fnmatchcase(name, p) for p in undefined):
                wrong.append(f"{name} is undefined and no library of libc's has it")
        elif binding != "LOCAL" and section != "ABS":
            shown.append(name)
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in exports):
                wrong.append(f"exports {name}, which is not in the public list")
    if not shown:
        wrong.append("exports nothing")
    found.append(f"exports {len(shown)} symbols: " + " ".join(sorted(shown)))

    for number in sorted(highest, key=version_key):
        if version_key(number) > version_key(limit):
            wrong.append(f"needs GLIBC_{number} for {' '.join(sorted(highest[number]))}; the limit is {limit}: "
                         "add to src/inject/glibc_floor.cpp")
    if highest:
        top = max(highest, key=version_key)
        names = sorted(highest[top])
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        found.append(f"highest GLIBC version needed: {top} ({' '.join(names[:5])}{more}); limit {limit}")
    return wrong, found


def self_test():
    faults = {  # what the message must say: source, link options
        None: ("extern \"C\" __attribute__((visibility(\"default\"))) int gpuflight_ok() { return 1; }", []),
        "needs libstdc++": ("#include <string>\nextern \"C\" int gpuflight_x(char* c) "
                            "{ return std::string(c).size() + (int)std::stoi(c); }", []),
        "exports leaked": ("extern \"C\" int leaked() { return 1; }", []),
        "GNU_UNIQUE": ("template <class T> struct A { static int v; }; template <class T> int A<T>::v = 1;"
                       "extern \"C\" int gpuflight_x() { return A<int>::v; }", []),
        "not marked NODELETE": ("extern \"C\" int gpuflight_x() { return 1; }", ["-Wl,-z,delete"]),
        "the limit is": ("#include <pthread.h>\n#include <unistd.h>\nextern \"C\" int gpuflight_x() "
                         "{ return gettid(); }", []),
        "no library of libc's has it": ("extern \"C\" int cuInit(int); extern \"C\" int gpuflight_x() "
                                        "{ return cuInit(0); }", ["-Wl,-z,lazy"]),
        "executable stack": ("extern \"C\" int gpuflight_x() { return 1; }", ["-Wl,-z,execstack"]),
    }
    failures = 0
    for expected, (source, options) in faults.items():
        with tempfile.TemporaryDirectory() as folder:
            library = f"{folder}/libfault.so"
            pathlib.Path(f"{folder}/fault.cpp").write_text(source)
            nodelete = [] if "-Wl,-z,delete" in options else ["-Wl,-z,nodelete"]
            subprocess.run(["c++", "-shared", "-fPIC", "-o", library, f"{folder}/fault.cpp", "-Wl,-z,now", *nodelete,
                            *(o for o in options if o != "-Wl,-z,delete")], check=True)
            wrong, _ = check(library)
        ok = not wrong if expected is None else any(expected in line for line in wrong)
        failures += not ok
        print(f"{'ok' if ok else 'NOT FOUND'}: {expected or 'a library without fault'} {'' if ok else wrong}")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?")
    parser.add_argument("--glibc", default=GLIBC_LIMIT, metavar="VERSION", help="the newest that may be needed")
    parser.add_argument("--exports", default=",".join(EXPORTS), help="comma-separated globs of allowed exports")
    parser.add_argument("--undefined", default="", help="globs of symbols that a cross compile may leave undefined")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if not args.library:
        parser.error("give a library or --self-test")
    wrong, found = check(args.library, args.exports.split(","), args.glibc, args.undefined.split(","))
    for line in found:
        print(f"  {line}")
    for line in wrong:
        print(f"{args.library}: {line}", file=sys.stderr)
    print(f"check_symbols: {'FAILED' if wrong else 'ok'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
