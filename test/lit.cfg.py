# The lit suites: test/{dialects,passes,pipeline,frontend,tools,numerics,distributed,experiments,fuzz}. `tools/check` runs them all; one
# suite or one file by hand:   /usr/lib/llvm-22/bin/lit -v build/test/passes
#
# The tools are on the PATH of a RUN line (braid-opt, braid-compile, braid-run, FileCheck, not, split-file, python3,
# mpirun). Substitutions besides lit's own (%s, %t, %S): %root the repository, %flatc, %python, %build.
# `--param=run_tools=DIR` takes braid-run from DIR (a build under a sanitizer).
# A test that needs something says `REQUIRES: <feature>`; each feature below carries the reason that is printed when the
# test is skipped.
import os
import shutil
import sys

sys.path.insert(0, os.path.join(config.braid_source_root, "tools", "dev"))
import braid_lit

bin_dir = os.path.join(config.braid_build_root, "bin")
python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

config.name = "Braid"
config.suffixes = [".mlir", ".test", ".py"]
config.excludes = ["lit.cfg.py", "Inputs", "schedule", "runtime", "kernels", "benchmark"]
config.test_source_root = os.path.join(config.braid_source_root, "test")
config.test_exec_root = os.path.join(config.braid_build_root, "test")

run_tools = lit_config.params.get("run_tools")
if run_tools:
    # A folder of links, so that only braid-run comes from there.
    first = os.path.join(config.braid_build_root, "test", "run-tools")
    os.makedirs(first, exist_ok=True)
    link = os.path.join(first, "braid-run")
    if os.path.lexists(link):
        os.remove(link)
    os.symlink(os.path.join(run_tools, "braid-run"), link)
    bin_dir = first + os.pathsep + bin_dir
config.environment["PATH"] = os.pathsep.join([bin_dir, config.llvm_tools_dir, os.path.dirname(python), "/usr/bin", "/bin"])
config.environment["PYTHONPATH"] = os.path.join(config.test_source_root, "numerics")
config.environment["PYTHONDONTWRITEBYTECODE"] = "1"
# One thread per process: tests run side by side, and a result must not depend on the number of cores.
config.environment["OMP_NUM_THREADS"] = "1"
# Tests compile the same kernels again and again. What must not depend on it says `%without_cache braid-compile`.
config.environment["BRAID_KERNEL_CACHE"] = os.path.join(config.test_exec_root, "kernel-cache")
# Most of a test's time was optimising machine code. test/kernels, and what says `%optimized`, run the code that users get, and
# the long tier runs no other.
full = lit_config.params.get("full", "0") == "1"
if not full:
    config.environment["BRAID_OPT_LEVEL"] = "0"
for name, value in braid_lit.OPEN_MPI_ENVIRONMENT.items():
    config.environment[name] = value
# Open MPI keeps memory for the life of a process: under the address sanitizer what is left at the end says nothing.
without_leaks = f"env ASAN_OPTIONS={os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"

config.substitutions += [("%root", config.braid_source_root), ("%flatc", config.flatc), ("%python", python),
                         ("%build", config.braid_build_root),
                         ("%without_leaks", without_leaks), ("%without_cache", "env -u BRAID_KERNEL_CACHE"),
                         ("%optimized", "env -u BRAID_OPT_LEVEL")]

# name: (is it there, why a test is skipped without it)
gpu = braid_lit.gpu_count()
links = braid_lit.missing(os.path.join(config.test_source_root, "experiments", "network.py"), "missing")
slurm = braid_lit.missing(os.path.join(config.test_source_root, "distributed", "slurm.py"), "--missing")
if "BRAID_SLURM" in os.environ:
    config.environment["BRAID_SLURM"] = os.environ["BRAID_SLURM"]
features = {
    "compiler": (config.have_compiler, "built without the compiler (BRAID_BUILD_COMPILER=OFF)"),
    "fuzzer": (config.have_fuzzer, "this compiler has no libFuzzer (package libclang-rt-22-dev)"),
    "mpi": (config.have_mpi and shutil.which("mpirun") is not None and not run_tools,
            "built without MPI, or no mpirun, or a build under a sanitizer, which does not know the MPI library"),
    "slurm": (config.have_mpi and slurm is None and not run_tools, f"built without MPI or under a sanitizer, or no Slurm: {slurm}"),
    "cuda-toolkit": (config.have_cuda, "built without the CUDA toolkit"),
    "nccl": (config.have_nccl and gpu > 0, "built without NCCL, or no GPU in this machine"),
    "gpu": (config.have_cuda and gpu > 0, "built without CUDA, or no GPU in this machine"),
    "gpus-2": (config.have_cuda and gpu > 1, "fewer than two GPUs in this machine"),
    "avx512": (braid_lit.cpu_has("avx512f", "avx512bw", "avx512vl"), "this CPU has no AVX-512"),
    "amx-bf16": (braid_lit.cpu_has("amx_tile", "amx_bf16"), "this CPU has no AMX"),
    "cores-4": ((os.cpu_count() or 1) >= 4, "fewer than four cores"),
    "shaped-links": (links is None, f"links cannot be shaped here: {links}"),
    "numpy": (braid_lit.has_numpy(python), "python3-numpy is not installed"),
    "long": (full, "long test, run by tools/check --full"),
}
config.available_features = {name for name, (there, _) in features.items() if there}
config.test_format = braid_lit.Format({name: why for name, (_, why) in features.items()})
