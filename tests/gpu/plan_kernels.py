"""plan_kernels.py PLAN FOLDER [--arch sm_90] [--nvcc PATH]: real kernels for a launch plan of the simulated device.

Writes one cubin for each module of the plan, with kernels of the plan's names, as near to its registers, shared and
local memory and barriers as the compiler goes, and FOLDER/plan.json: the plan with the facts that the compiler
reported in the place of the wishes. Played on a GPU with --kernels FOLDER and on the simulated device, that one plan
must leave the same log. Modules that name a source of their own are compiled from it, by tests/plans/make_kernels.py.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

PLANS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plans")
sys.path.insert(0, PLANS)
import make_kernels  # noqa: E402

# Volatile loads may not pass volatile stores: all `live` values are in registers in between. Never executed.
PRELUDE = """
__device__ volatile int never_set;
__device__ volatile float scratch[1024];
template <int Live, int Static>
__device__ __forceinline__ void occupy() {
  if constexpr (Static > 0) {
    __shared__ char buffer[Static];
    static_cast<volatile char*>(buffer)[threadIdx.x % Static] = 1;
  }
  if constexpr (Live > 0) {
    float values[Live];
#pragma unroll
    for (int i = 0; i < Live; ++i) values[i] = scratch[i];
#pragma unroll
    for (int i = 0; i < Live; ++i) scratch[i + 1] = values[i];
  }
}
"""


def identifier(name):
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None


def source_of(name, kernel, live, cap):
    """One kernel; `cap` 0: registers are left to the compiler."""
    limits = f" __launch_bounds__({kernel['max_threads']})" if "max_threads" in kernel else ""
    limits += f" __maxnreg__({cap})" if cap else ""
    if "required_cluster" in kernel:
        limits += " __cluster_dims__({}, {}, {})".format(*kernel["required_cluster"])
    parameters = kernel.get("param_bytes", 0)
    text = f"struct parameters_{name} {{ char bytes[{parameters}]; }};\n" if parameters else ""
    text += f'extern "C" __global__ void{limits} {name}({f"parameters_{name}" if parameters else ""}) {{\n'
    text += "  if (never_set == 0) return;\n"
    for barrier in range(kernel.get("barriers", 1) if kernel.get("barriers", 1) > 1 else 0):
        text += f'  asm volatile("bar.sync {barrier}, 64;" ::: "memory");\n'
    return text + f"  occupy<{live}, {kernel.get('static_shared_bytes', 0)}>();\n}}\n"


def compile_cubin(nvcc, arch, text, out):
    """Compiles and returns what ptxas says of each kernel: registers, shared and local bytes, barriers."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernels.cu")
        with open(path, "w") as f:
            f.write(PRELUDE + text)
        done = subprocess.run([nvcc, "-std=c++17", "-cubin", f"-arch={arch}", "-Xptxas", "-v", path, "-o", out],
                              capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit("nvcc failed:\n" + done.stderr[-3000:])
    facts, name = {}, None
    for line in (done.stdout + done.stderr).splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            name = found.group(1)
            facts[name] = {"registers": 0, "static_shared_bytes": 0, "local_bytes": 0, "barriers": 1}
        elif name and (found := re.search(r"(\d+) bytes stack frame", line)):
            facts[name]["local_bytes"] = int(found.group(1))
        elif name and (found := re.search(r"Used (\d+) registers", line)):
            facts[name]["registers"] = int(found.group(1))
            if shared := re.search(r"(\d+) bytes smem", line):
                facts[name]["static_shared_bytes"] = int(shared.group(1))
            if barriers := re.search(r"used (\d+) barriers", line):
                facts[name]["barriers"] = max(1, int(barriers.group(1)))
    return facts


def candidates(kernel):
    wanted = min(kernel.get("registers", 16), 255)
    most = min(wanted + 12 + kernel.get("local_bytes", 0) // 4, 900)
    caps = [0] if "max_threads" in kernel else [0, max(wanted, 16)]
    return [(live, cap) for cap in caps for live in sorted({0, *range(max(wanted - 16, 0), most + 1)})]


def choose(kernels, nvcc, arch):
    """For each kernel the (live, cap) that comes nearest."""
    text, tried = "", {}
    for i, kernel in enumerate(kernels.values()):
        for live, cap in candidates(kernel):
            name = f"try_{i}_{live}_{cap}"
            tried[name] = (i, live, cap)
            text += source_of(name, kernel, live, cap)
    with tempfile.TemporaryDirectory() as folder:
        facts = compile_cubin(nvcc, arch, text, os.path.join(folder, "tried.cubin"))
    chosen = {}
    for i, (kernel_id, kernel) in enumerate(kernels.items()):
        def distance(name):
            got = facts[name]
            return (abs(got["registers"] - kernel.get("registers", 16)),
                    abs(got["local_bytes"] - kernel.get("local_bytes", 0)), tried[name][2])
        best = min((name for name, (index, _, _) in tried.items() if index == i), key=distance)
        chosen[kernel_id] = tried[best][1:]
    return chosen


def generate(plan, folder, nvcc, arch):
    """The adjusted plan; cubins are in `folder` afterwards. ValueError: a name that C cannot write."""
    os.makedirs(folder, exist_ok=True)
    plan = json.loads(json.dumps(plan))
    for module_id, module in plan["modules"].items():
        kernels = module["kernels"]
        cubin = os.path.join(folder, module.get("file", module_id + ".cubin"))
        if "source" in module:
            facts = make_kernels.compile_module(nvcc, os.path.join(PLANS, module["source"]), arch, cubin)
            for kernel in kernels.values():
                kernel.update(facts[kernel["name"]])
            continue
        for kernel_id, kernel in kernels.items():
            if not identifier(kernel.get("name", "")) or "name_length" in kernel:
                raise ValueError(f"kernel {kernel_id}: its name is no C identifier")
        chosen = choose(kernels, nvcc, arch)
        text = "".join(source_of(k["name"], k, *chosen[kernel_id]) for kernel_id, k in kernels.items())
        facts = compile_cubin(nvcc, arch, text, cubin)
        for kernel in kernels.values():
            kernel.update(facts[kernel["name"]])
    with open(os.path.join(folder, "plan.json"), "w") as f:
        json.dump(plan, f, indent=1)
    return plan


def main():
    parser = argparse.ArgumentParser(prog="plan_kernels.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("plan")
    parser.add_argument("folder")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvcc", default="nvcc")
    args = parser.parse_args()
    with open(args.plan, encoding="utf-8") as f:
        plan = json.load(f)
    try:
        adjusted = generate(plan, args.folder, args.nvcc, args.arch)
    except ValueError as error:
        sys.exit(f"plan_kernels.py: {error}")
    for module_id, module in adjusted["modules"].items():
        for kernel_id, got in module["kernels"].items():
            wanted = plan["modules"][module_id]["kernels"][kernel_id]
            changed = [f"{key} {wanted[key]} -> {got[key]}" for key in wanted if wanted[key] != got[key]]
            print(f"{module_id}.{kernel_id}: " + (", ".join(changed) or "as wished"))


if __name__ == "__main__":
    main()
