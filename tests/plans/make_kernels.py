#!/usr/bin/env python3
"""Compiles the kernels of a plan and writes their true figures back into it.

Modules of the plan that name a "source" (a .cu beside the plan) are compiled with nvcc for --arch; every kernel the
plan lists under them gets the registers, static shared memory, stack and barriers that ptxas reports and the launch
bounds of its PTX. The cubins go to --out, where `gpuflight-play --kernels DIR` finds them on a real GPU; the figures
make the simulated device answer the same. With --check nothing is written: it fails where plan and compiler differ.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

# What ptxas -v says, kernel by kernel.
ENTRY = re.compile(r"Compiling entry function '(?P<name>\S+)' for")
STACK = re.compile(r"(\d+) bytes stack frame")
USED = re.compile(r"Used (\d+) registers")
BARRIERS = re.compile(r"used (\d+) barriers")
SHARED = re.compile(r"(\d+) bytes smem")
# What the PTX says.
PTX_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*\((?P<params>[^)]*)\)(?P<directives>[^{]*)\{", re.S)
MAX_THREADS = re.compile(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
# What cuobjdump --dump-resource-usage says, where there is one: a second opinion.
RESOURCE = re.compile(r"Function (?P<name>\S+):\s*\n\s*REG:(?P<reg>\d+) STACK:(?P<stack>\d+) SHARED:(?P<shared>\d+)")


def find_tool(name):
    for folder in (os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"):
        path = os.path.join(folder, "bin", name)
        if folder and os.access(path, os.X_OK):
            return path
    return shutil.which(name)


def threads_that_fit(registers):
    """The driver's answer for a kernel without launch bounds: whole warps, in fours, of 64 K registers."""
    if registers <= 0:
        return 1024
    per_warp = (registers * 32 + 255) // 256 * 256
    return min(1024, 65536 // per_warp // 4 * 4 * 32)


def product(match):
    threads = 1
    for n in match.groups():
        threads *= int(n) if n else 1
    return threads


def read_ptxas(text):
    kernels, current = {}, None
    for line in text.splitlines():
        if match := ENTRY.search(line):
            current = kernels.setdefault(match["name"], {"static_shared_bytes": 0, "local_bytes": 0, "barriers": 0})
        elif current is not None:
            if match := STACK.search(line):
                current["local_bytes"] = int(match[1])
            if match := USED.search(line):
                current["registers"] = int(match[1])
                if match := BARRIERS.search(line):
                    current["barriers"] = int(match[1])
                if match := SHARED.search(line):
                    current["static_shared_bytes"] = int(match[1])
    return kernels


def add_ptx(kernels, text):
    for match in PTX_ENTRY.finditer(text):
        kernel = kernels[match["name"]]
        bound = MAX_THREADS.search(match["directives"])
        kernel["max_threads"] = product(bound) if bound else threads_that_fit(kernel["registers"])
        if cluster := CLUSTER.search(match["directives"]):
            kernel["required_cluster"] = [int(n) if n else 1 for n in cluster.groups()]


def second_opinion(kernels, cubin):
    tool = find_tool("cuobjdump")
    if not tool:
        return
    text = subprocess.run([tool, "--dump-resource-usage", cubin], check=True, capture_output=True, text=True).stdout
    for match in RESOURCE.finditer(text):
        kernel = kernels.get(match["name"])
        if kernel and int(match["reg"]) != kernel["registers"]:
            sys.exit(f"{match['name']}: ptxas says {kernel['registers']} registers, cuobjdump {match['reg']}")


def compile_module(nvcc, source, arch, cubin):
    result = subprocess.run([nvcc, "-cubin", f"-arch={arch}", "-std=c++17", "-Xptxas", "-v", "-o", cubin, source],
                            check=False, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    kernels = read_ptxas(result.stderr)
    ptx = subprocess.run([nvcc, "-ptx", f"-arch={arch}", "-std=c++17", "-o", "-", source],
                         check=True, capture_output=True, text=True).stdout
    add_ptx(kernels, ptx)
    second_opinion(kernels, cubin)
    number = int(re.sub(r"\D", "", arch))
    for kernel in kernels.values():
        kernel["binary_version"] = kernel["ptx_version"] = number
    return kernels


def layout(value, indent=0):
    """JSON with everything that fits on one line on one line, as the plans are written by hand."""
    flat = json.dumps(value)
    if len(flat) + indent <= 118 or not isinstance(value, (dict, list)) or not value:
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        lines = [f"{pad}{json.dumps(key)}: {layout(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(pad + layout(item, indent + 1) for item in value) + "\n" + " " * indent + "]"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "parity.json"))
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--out", default="kernels", help="folder for the cubins")
    parser.add_argument("--check", action="store_true", help="compare, write nothing into the plan")
    args = parser.parse_args()

    nvcc = find_tool("nvcc")
    if not nvcc:
        sys.exit("nvcc not found: set CUDA_HOME")
    with open(args.plan, encoding="utf-8") as file:
        plan = json.load(file)
    os.makedirs(args.out, exist_ok=True)
    differences = 0
    for module_id, module in plan["modules"].items():
        if "source" not in module:
            continue
        source = os.path.join(os.path.dirname(os.path.abspath(args.plan)), module["source"])
        cubin = os.path.join(args.out, module.get("file", module_id + ".cubin"))
        compiled = compile_module(nvcc, source, args.arch, cubin)
        for kernel_id, kernel in module["kernels"].items():
            if kernel["name"] not in compiled:
                sys.exit(f"{module['source']} has no kernel {kernel['name']}; it has {', '.join(sorted(compiled))}")
            for key, value in compiled[kernel["name"]].items():
                if kernel.get(key) != value:
                    print(f"{kernel_id}.{key}: {kernel.get(key)} -> {value}")
                    differences += 1
                kernel[key] = value
    if args.check:
        sys.exit(1 if differences else 0)
    if differences:
        with open(args.plan, "w", encoding="utf-8") as file:
            file.write(layout(plan) + "\n")


if __name__ == "__main__":
    main()
