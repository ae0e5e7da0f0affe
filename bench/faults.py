"""The rows of bench/run in which workers are lost: how long it takes to notice and to go on, what is left of the speed,
and what PyTorch DDP does about the same."""
import csv
import datetime
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import threading
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
SETTLED = 2.0     # seconds after a fault, when nothing of it is left
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
        return self.seconds()

    def seconds(self):
        with open(f"{self.folder}/run/report.json") as report:
            return 1 / json.load(report)["samples_per_s"]


class SteadyRun(Run):
    """By the middle one of its epochs, but the first: what it costs to go on."""

    def seconds(self):
        with open(f"{self.folder}/run/history.csv") as history:
            return statistics.median(1 / float(epoch["samples_per_s"]) for epoch in list(csv.DictReader(history))[1:])


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
        """Steps per second of a run with faults, against those of the same run's undisturbed time, for the share of workers that was
        alive. Runs of a minute differ more than faults cost, so that one run is compared with itself."""
        seconds = 15 if self.options.quick else 95
        self.tables += ["", "Goodput: CNN, 2 workers, `shm`, one is killed every so often and replaced; against the time of the same runs from "
                        f"{SETTLED:g} s after a fault", "",
                        "| fault every | faults | steps/s | undisturbed | workers alive | of what was alive | target |", "|" + "---|" * 7]
        for every, target in ((5, 0.95), (30, 0.99)):
            if every > seconds:
                continue
            faults = [(every * (i + 1), "kill", 1 + i) for i in range(int((seconds - 2) / every))]
            runs = []
            for _ in range(2):
                with self.folder() as folder, Steps(self.command, folder) as steps:
                    _, log = self.train(folder, seconds, faults, 2, "--respawn")
                runs.append(goodput(steps.seen, log, 2))
            rate, undisturbed, alive = (sum(values) / len(runs) for values in zip(*runs))
            share = rate / undisturbed / alive
            self.results[f"goodput_{every}"] = {"share": share, "runs": runs}
            self.tables.append(f"| {every} s | {len(runs) * len(faults)} | {rate:.0f} | {undisturbed:.0f} | {alive * 2:.3f} of 2 | "
                               f"{share:.3f} | ≥ {target} {'met' if share >= target else '**missed**'} |")

    def measure_survive(self):
        """What heartbeats, commits and checkpoints cost a run to which nothing happens."""
        with self.folder() as folder:
            epochs = 6 if self.options.quick else 12
            bare = SteadyRun(self, folder, epochs, "--set", "strategy.survive=false", "--set", "checkpoint.enabled=false")
            row = take_turns(SteadyRun(self, folder, epochs), bare, self.options.pairs)
        best = {key: min(taken for pair in row["pairs"] for taken in pair[key]) for key in ("ours", "peer")}
        self.results["survive"] = row
        self.tables += ["", "Cost of heartbeats, commits and checkpoints: CNN, 2 workers, `shm`, speed of runs with them against runs without, each by the "
                        "middle one of its epochs; medians, and the best of each, which what disturbs the machine has not touched", "",
                        "| | with them | without | ratio | target |", "|---|---|---|---|---|",
                        f"| median | {1 / row['ours_s']:.0f} samples/s | {1 / row['peer_s']:.0f} samples/s | {ratio_text(row, 3)} | ≥ 0.99 "
                        f"{'met' if row['ratio'] >= 0.99 else '**missed**'} |",
                        f"| best of {2 * len(row['pairs'])} | {1 / best['ours']:.0f} samples/s | {1 / best['peer']:.0f} samples/s | "
                        f"{best['peer'] / best['ours']:.3f}× | |"]

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


class Steps:
    """Asks a run for its step, again and again, until it is left; `seen` has (time, step)."""

    def __init__(self, command, folder):
        self.command, self.folder, self.seen = command, folder, []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.ask)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def ask(self):
        while not self.over.wait(0.25):
            status = subprocess.run([self.command, "status", "run", "--json"], cwd=self.folder, capture_output=True, text=True, timeout=60)
            if status.returncode == 0:
                self.seen.append((time.time(), json.loads(status.stdout)["step"]))


def views(log, workers):
    """(time, workers alive) of each change of a run, by its log."""
    changes = []
    for line in log:
        stamp = re.match(r"(\d+-\d+-\d+ \d+:\d+:\d+\.\d+) ", line)
        found = re.search(r"; workers? ([0-9, ]+) goe?s? on", line)
        if stamp and found:
            changes.append((datetime.datetime.fromisoformat(stamp[1]).timestamp(), len(found[1].split(","))))
    return changes


def goodput(seen, log, workers):
    """Steps per second over all of a run's time, those of its undisturbed time, and the share of workers that was alive."""
    changes = views(log, workers)
    begin, end = seen[0], seen[-1]
    last, alive, worked = begin[0], workers, 0.0
    for at, now in [*changes, (end[0], workers)]:
        worked += alive * (at - last)
        last, alive = at, now
    steps = took = 0
    for (t0, step0), (t1, step1) in zip(seen, seen[1:]):
        if all(t1 < at or t0 > at + SETTLED for at, _ in changes):
            steps, took = steps + step1 - step0, took + t1 - t0
    return (end[1] - begin[1]) / (end[0] - begin[0]), steps / took, worked / (end[0] - begin[0]) / workers
