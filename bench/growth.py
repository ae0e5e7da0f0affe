"""The row of bench/run that looks whether memory grows while a run goes on: early in a run, and at its end."""
import json
import os
import signal
import subprocess
import tempfile
import time

from faults import JOB
from protocol import fail

GROWTH_KEYS = ["growth"]
RUNS = {"one process": ["--lanes", "2"],
        "`all_reduce`, `shm`": ["--workers", "2"],
        "`all_reduce`, `tcp`": ["--workers", "2", "--set", "strategy.fabric=tcp"],
        "`sharded`": ["--workers", "2", "--strategy", "sharded", "--set", "strategy.fabric=tcp"],
        "`parameter_server`, `async`": ["--workers", "2", "--strategy", "parameter_server", "--set", "strategy.consistency=async"],
        "`local_sgd`": ["--workers", "2", "--strategy", "local_sgd"]}
MIB = 1 << 20


class GrowthBench:
    def __init__(self, workers):
        self.options, self.tables, self.results = workers.options, workers.tables, workers.results
        self.command = os.path.abspath(f"{self.options.build}/bin/starling")

    def measure_growth(self):
        seconds = 16 if self.options.quick else 40
        self.tables += ["", f"Memory over time: CNN, Fashion-MNIST, checkpoints every second; all processes of a run together (Pss), {seconds / 4:g} s "
                        f"after its start and at the end of {seconds} s", "", "| run | early MiB | late MiB | steps between |", "|---|---|---|---|"]
        for name, flags in RUNS.items():
            early, late, steps = self.watch(seconds, flags)
            self.results["growth: " + name] = {"early": early, "late": late, "steps": steps}
            self.tables.append(f"| {name} | {early / MIB:.1f} | {late / MIB:.1f} | {steps} |")

    def watch(self, seconds, flags):
        with tempfile.TemporaryDirectory(prefix="starling_bench_") as folder:
            with open(f"{folder}/job.toml", "w") as file:
                file.write(JOB)
            process = subprocess.Popen([self.command, "train", "job.toml", "--no-progress", "--run-dir", "run", "--set",
                                        "checkpoint.every_seconds=1", *flags], cwd=folder, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            try:
                time.sleep(seconds / 4)
                early = self.look(folder, process.pid)
                time.sleep(seconds * 3 / 4)
                late = self.look(folder, process.pid)
            finally:
                process.send_signal(signal.SIGTERM)
                _, error = process.communicate(timeout=60)
            if process.returncode != 75:
                fail(f"a run ended with {process.returncode}", error.strip())
        return early[0], late[0], late[1] - early[1]

    def look(self, folder, pid):
        """Bytes of all processes, and the step of the run by its newest checkpoint."""
        newest = max(int("".join(filter(str.isdigit, name)) or 0) for name in os.listdir(f"{folder}/run/checkpoints"))
        return sum(pss(each) for each in tree_of(pid)), newest


def tree_of(pid):
    """The process, its children, theirs …"""
    found = [pid]
    for each in found:
        for task in os.listdir(f"/proc/{each}/task"):
            with open(f"/proc/{each}/task/{task}/children") as file:
                found += [int(word) for word in file.read().split()]
    return found


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
