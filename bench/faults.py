"""The rows of bench/run in which workers are lost: how long it takes to notice and to go on, what is left of the speed,
and what PyTorch DDP does about the same."""
import datetime
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from protocol import fail, quantile, ratio_text, take_turns

FAULT_KEYS = ["recovery", "goodput", "survive", "balance", "ddp_kill"]
JOB = """name = "faults"
shards = 8
[data]
source = "fashion-mnist"
[[model.layers]]
type = "conv2d"
filters = 32
kernel = 3
activation = "relu"
[[model.layers]]
type = "max_pool2d"
window = 2
[[model.layers]]
type = "flatten"
[[model.layers]]
type = "dense"
units = 10
[training]
epochs = 1000
batch = 64
"""
HEARTBEAT = 0.5   # seconds, for the rows with frozen workers
KILL_EVERY = 1.0  # longer than a new worker takes to come in
SLOWED, SHARDS = 4, 16  # for the row with a slow worker: its factor, and the shards of a batch
KILLED_MOST, FROZEN_MOST, RESUMED_MOST = 0.1, HEARTBEAT + 0.2, 1.0


class Run:
    """Runs of the command, each of the same length; what is measured is the seconds for a sample."""

    def __init__(self, bench, folder, epochs, *flags):
        self.command = [bench.command, "train", "job.toml", "--workers", "2", "--lanes", "1", "--overwrite", "--no-progress",
                        "--run-dir", "run", "--set", f"training.epochs={epochs}", *flags]
        self.folder = folder

    def sample(self):
        ended = subprocess.run(self.command, cwd=self.folder, capture_output=True, text=True, timeout=600)
        if ended.returncode != 0:
            fail(f"a run ended with {ended.returncode}", ended.stderr.strip())
        with open(f"{self.folder}/run/report.json") as report:
            return 1 / json.load(report)["samples_per_s"]


class FaultsBench:
    def __init__(self, workers):
        self.bench, self.options, self.tables, self.results = workers.bench, workers.options, workers.tables, workers.results
        self.ddp = workers.ddp
        self.command = os.path.abspath(f"{self.options.build}/bin/starling")

    def train(self, folder, seconds, faults, workers, *flags):
        """Trains for a while, with faults as (time, action, worker); the report, and the lines of the log."""
        with open(f"{folder}/faults.toml", "w") as file:
            for at, action, worker in faults:
                file.write(f'[[fault]]\naction = "{action}"\nworker = {worker}\nat = {at:.3f}\n')
        process = subprocess.Popen([self.command, "train", "job.toml", "--workers", str(workers), "--lanes", "1", "--overwrite",
                                    "--no-progress", "--run-dir", "run", *flags] + (["--faults", "faults.toml"] if faults else []),
                                   cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            _, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            _, error = process.communicate(timeout=60)
        if process.returncode not in (0, 75):
            fail(f"a run with faults ended with {process.returncode}", error.strip())
        with open(f"{folder}/run/report.json") as report, open(f"{folder}/run/log.txt") as log:
            return json.load(report), log.read().splitlines()

    def folder(self):
        folder = tempfile.TemporaryDirectory(prefix="starling_bench_")
        with open(f"{folder.name}/job.toml", "w") as file:
            file.write(JOB)
        return folder

    def measure_recovery(self):
        """One worker of 3 after the other is lost and replaced; the new ones are called 3, 4, …"""
        rows = []
        for action, count, every in (("kill", 30 if self.options.quick else 100, KILL_EVERY),
                                     ("freeze", 30 if self.options.quick else 100, KILL_EVERY + HEARTBEAT)):
            with self.folder() as folder:
                faults = [(3 + i * every, action, i) for i in range(count)]
                report, _ = self.train(folder, 3 + count * every + 2, faults, 3, "--respawn", "--set",
                                       f"strategy.heartbeat_limit={HEARTBEAT}")
            losses = [r for r in report["recoveries"] if r["lost"]]
            rows.append((action, losses))
            self.results[f"recovery_{action}"] = losses
        self.tables += ["", "Recovery: CNN, 3 workers, `shm`, a fault every "
                        f"{KILL_EVERY:g} s (freeze: {KILL_EVERY + HEARTBEAT:g} s, heartbeat limit {HEARTBEAT:g} s), lost ones replaced", "",
                        "| fault | losses | noticed after, median | p99 | target | others went on after, median | p99 | target |",
                        "|---|---|---|---|---|---|---|---|"]
        for (action, losses), most in zip(rows, (KILLED_MOST, FROZEN_MOST)):
            noticed = [loss["detection_s"] for loss in losses if loss["detection_s"] is not None]
            resumed = [loss["resumption_s"] for loss in losses]
            if not noticed:
                fail(f"no {action} was noticed", "run it alone, without --quick")
            cells = [action, str(len(losses))]
            for times, limit in ((noticed, most), (resumed, RESUMED_MOST)):
                worst = quantile(times, 0.99)
                cells += [f"{quantile(times, 0.5) * 1e3:.1f} ms", f"{worst * 1e3:.1f} ms",
                          f"≤ {limit * 1e3:.0f} ms {'met' if worst <= limit else '**missed**'}"]
            self.tables.append("| " + " | ".join(cells) + " |")

    def measure_goodput(self):
        """Samples per second with faults, of those without, for the share of workers that was alive."""
        seconds = 15 if self.options.quick else 65
        self.tables += ["", "Goodput: CNN, 2 workers, `shm`, one is killed every so often and replaced", "",
                        "| fault every | samples/s | without faults | workers alive | of what was alive | target |", "|---|---|---|---|---|---|"]
        for every, target in ((5, 0.95), (30, 0.99)):
            if every > seconds:
                continue
            with self.folder() as folder:
                count = int((seconds - 2) / every)
                faults = [(every * (i + 1), "kill", 1 + i) for i in range(count)]
                # Without, with, with, without: the machine's speed wavers from minute to minute.
                flags = ("--respawn",)
                runs = [self.train(folder, seconds, some, 2, *flags) for some in ([], faults, faults, [])]
            whole = (runs[0][0]["samples_per_s"] + runs[3][0]["samples_per_s"]) / 2
            faulty = (runs[1][0]["samples_per_s"] + runs[2][0]["samples_per_s"]) / 2
            alive = (alive_share(runs[1][1], 2) + alive_share(runs[2][1], 2)) / 2
            share = faulty / whole / alive
            self.results[f"goodput_{every}"] = share
            self.tables.append(f"| {every} s | {faulty:.0f} | {whole:.0f} | {alive * 2:.3f} of 2 | {share:.3f} | "
                               f"≥ {target} {'met' if share >= target else '**missed**'} |")

    def measure_survive(self):
        """What heartbeats, commits and checkpoints cost a run to which nothing happens."""
        with self.folder() as folder:
            epochs = 1 if self.options.quick else 3
            bare = Run(self, folder, epochs, "--set", "strategy.survive=false", "--set", "checkpoint.enabled=false")
            row = take_turns(Run(self, folder, epochs), bare, self.options.pairs)
        self.results["survive"] = row
        self.tables += ["", "Cost of heartbeats, commits and checkpoints: CNN, 2 workers, `shm`, speed of a run with them against one without", "",
                        "| with them | without | ratio | target |", "|---|---|---|---|",
                        f"| {1 / row['ours_s']:.0f} samples/s | {1 / row['peer_s']:.0f} samples/s | {ratio_text(row, 3)} | ≥ 0.99 "
                        f"{'met' if row['ratio'] >= 0.99 else '**missed**'} |"]

    def measure_balance(self):
        """One of two workers is slow. In times that a shard takes the other one: a step takes 8 of 16 when both are well, 13 with the
        best placement of whole shards, and 32 with as many for each."""
        best = min(max(SHARDS - few, SLOWED * few) for few in range(1, SHARDS))
        speed = ["--set", "strategy.balance=speed"]
        with self.folder() as folder:
            with open(f"{folder}/slow.toml", "w") as file:
                file.write(f'[[fault]]\naction = "slow"\nworker = 1\nfactor = {SLOWED}\n')
            shards, slow = ["--set", f"shards={SHARDS}"], ["--faults", "slow.toml"]
            run = lambda *flags: Run(self, folder, 1 if self.options.quick else 2, *shards, *flags)
            pairs = max(1, self.options.pairs // 2)
            rows = [("nobody is slow, `speed`", SHARDS / 2, take_turns(run(*speed), run(), pairs)),
                    ("one is, `even`", SHARDS / 2 * SLOWED, take_turns(run(*slow), run(), 1)),
                    ("one is, `speed`", best, take_turns(run(*slow, *speed), run(), pairs))]
        self.tables += ["", f"Balance: CNN, 2 workers, {SHARDS} shards, one worker {SLOWED}× slower; against a run where nobody is and shards lie evenly",
                        "", "| run | speed | step, in shards' times | at best | within one shard's time |", "|---|---|---|---|---|"]
        for name, least, row in rows:
            took = SHARDS / 2 / row["ratio"]
            self.results["balance: " + name] = row
            self.tables.append(f"| {name} | {ratio_text(row, 3)} | {took:.2f} | {least:g} | {'yes' if took <= least + 1 else '**no**'} |")

    def measure_ddp_kill(self):
        """What the other rank of DDP does when one is killed in the middle of its steps."""
        group = self.ddp("cnn", 64)
        try:
            group.tell("run 100000")
            time.sleep(1)
            group.programs[1].process.kill()
            begin = time.perf_counter()
            limit = 20 if self.options.quick else 120
            try:
                code = group.programs[0].process.wait(timeout=limit)
                text = f"ends with exit code {code} after {(time.perf_counter() - begin) * 1e3:.0f} ms; the run is over, and what was not " \
                       "saved by the user's own code is lost"
            except subprocess.TimeoutExpired:
                text = f"had not noticed after {limit} s"
        finally:
            for program in group.programs:
                program.process.kill()
                program.process.wait()
        self.results["ddp_kill"] = text
        self.tables += ["", f"PyTorch DDP with Gloo, CNN, 2 processes, one killed: the other {text}."]


def alive_share(log, workers):
    """How many of the workers were there, over the time of training, from the times of the log."""
    at, alive, total, last = None, workers, 0.0, None
    first = None
    for line in log:
        stamp = re.match(r"(\d+-\d+-\d+ \d+:\d+:\d+\.\d+) ", line)
        if not stamp:
            continue
        at = datetime.datetime.fromisoformat(stamp[1]).timestamp()
        first = first or at
        found = re.search(r"; workers? ([0-9, ]+) goe?s? on", line)
        if found:
            total += alive * (at - (last or first))
            last, alive = at, len(found[1].split(","))
    total += alive * (at - (last or first))
    return total / max(at - first, 1e-9) / workers
