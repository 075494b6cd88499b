"""What test/lit.cfg.py needs beyond lit: the test format and the questions about this machine."""
import ctypes
import functools
import os
import re
import subprocess
import sys

import lit.formats
import lit.Test

# Several ranks per core, as root, over shared memory: what a test machine needs and a cluster must not inherit.
OPEN_MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "vader,self",
}


class Format(lit.formats.ShTest):
    """Shell tests; a .py file without a RUN line is a helper module; a skipped test tells its reason."""

    def __init__(self, reasons):
        super().__init__(execute_external=False)
        self.reasons = reasons

    def getTestsForPath(self, test_suite, path_in_suite, lit_config, local_config):
        if path_in_suite[-1].endswith(".py"):
            with open(test_suite.getSourcePath(path_in_suite), encoding="utf-8") as file:
                if "RUN:" not in file.read():
                    return
        yield from super().getTestsForPath(test_suite, path_in_suite, lit_config, local_config)

    def execute(self, test, lit_config):
        result = super().execute(test, lit_config)
        if result.code == lit.Test.UNSUPPORTED:
            missing = re.search(r"unavailable features: (.*)", result.output)
            if missing:
                names = [name.strip() for name in missing.group(1).split(",")]
                result.output = "; ".join(self.reasons.get(name, f"no feature '{name}'") for name in names)
        return result


def missing(*command):
    """What a helper of tests says it lacks on this machine; None: nothing."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stdout.strip() or f"{os.path.basename(command[0])} failed"


@functools.lru_cache
def cpu_flags():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return frozenset(re.search(r"^flags\s*:(.*)$", file.read(), re.MULTILINE).group(1).split())
    except (OSError, AttributeError):
        return frozenset()


def cpu_has(*flags):
    return cpu_flags().issuperset(flags)


def gpu_count():
    """The driver's answer; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def has_numpy(python):
    return subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False).returncode == 0
