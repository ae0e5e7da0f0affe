"""The rows of bench/run of workers that train apart and agree now and then: what their steps cost beside those of one process,
what of an exchange is hidden, what they do over a slow link, and the bytes of each strategy against docs/algorithms.md."""
import csv
import json

from faults import Run
from protocol import ratio_text, take_turns, target_text

APART_KEYS = ["local_rate", "gossip_hidden", "slow_link", "bytes"]
RATE_TARGET, HIDDEN_TARGET, LINK_TARGET = 0.97, 0.8, 5.0
LOCAL = ["--strategy", "local_sgd", "--set", "strategy.period=64", "--set", "strategy.outer=nesterov"]
GOAL = 0.87  # accuracy, after which times over a slow link are compared
WEIGHTS = 32 * 9 + 32 + 13 * 13 * 32 * 10 + 10  # of the job
ADAM = 2  # numbers for each weight that the optimizer keeps


class ApartBench:
    """Asks `workers` (class WorkersBench) for what the rows have in common."""

    def __init__(self, workers):
        self.workers, self.options, self.tables, self.results = workers, workers.options, workers.tables, workers.results

    def run_of(self, folder, workers, epochs, *flags):
        run = Run(self.workers.faults, folder, epochs, *flags)
        run.command[run.command.index("--workers") + 1] = str(workers)
        return run

    @staticmethod
    def report_of(run):
        run.sample()
        with open(f"{run.folder}/run/report.json") as file:
            return json.load(file)

    def measure_local_rate(self):
        """One worker that makes its steps as `local_sgd` does, with all of its exchange, against one process; on one core, as where
        every core has a worker: `single` would read its samples on another one."""
        with self.workers.faults.folder() as folder:
            ours, peer = self.run_of(folder, 1, 2, *LOCAL), self.run_of(folder, 1, 2, "--strategy", "single")
            for run in (ours, peer):
                run.command = ["taskset", "-c", str(max(self.workers.cores)), *run.command]
            row = dict(take_turns(ours, peer, self.options.pairs), target=RATE_TARGET)
        self.results["local_rate"] = row
        self.tables += ["", f"Steps of `local_sgd`, `period = 64`, against those of `single`: CNN, batch 64, one worker, one core: "
                        f"{ratio_text(row, 3)} of its speed ({target_text(row)})."]

    def measure_gossip_hidden(self):
        """Of the time that workers' meetings take, what is not added to their steps."""
        parts = []
        with self.workers.faults.folder() as folder:
            run = self.run_of(folder, 4, 2, "--strategy", "gossip", "--link-rate", "1gbit")
            for _ in range(max(3, self.options.pairs // 2)):
                times = self.report_of(run)["worker_times"]
                hidden, exposed = (sum(worker[kind] for worker in times) for kind in ("hidden_s", "communication_s"))
                parts.append(hidden / (hidden + exposed))
        parts.sort()
        row = {"ratio": parts[len(parts) // 2], "low": parts[0], "high": parts[-1], "target": HIDDEN_TARGET}
        self.results["gossip_hidden"] = row
        self.tables += ["", f"`gossip`, `period = 16`, CNN, 4 workers, links of 1 Gbit/s: {row['ratio']:.0%} "
                        f"[{row['low']:.0%} – {row['high']:.0%}] of its communication is hidden (target {HIDDEN_TARGET:.0%})."]

    def measure_slow_link(self):
        """Seconds of training until the accuracy on the test data, of history.csv."""
        def seconds(run):
            run.sample()
            with open(f"{run.folder}/run/history.csv") as file:
                so_far = 0.0
                for epoch in csv.DictReader(file):
                    so_far += float(epoch["train_seconds"])
                    if float(epoch["val_accuracy"]) >= GOAL:
                        return so_far
            return float("inf")
        with self.workers.faults.folder() as folder:
            link = ["--link-rate", "100mbit"]
            ours = seconds(self.run_of(folder, 4, 3, *LOCAL, *link))
            peer = seconds(self.run_of(folder, 4, 3, "--strategy", "all_reduce", *link))
        self.results["slow_link"] = {"ratio": peer / ours, "target": LINK_TARGET, "ours_s": ours, "peer_s": peer}
        self.tables += ["", f"Links of 100 Mbit/s, CNN, 4 workers: `local_sgd`, `period = 64`, reaches {GOAL:.0%} after {ours:.1f} s of training, "
                        f"`all_reduce` after {peer:.1f} s: {peer / ours:.1f}× sooner (target {LINK_TARGET:.0f}×)."]

    def measure_bytes(self):
        """What all workers send for a sample, against the formulas of docs/algorithms.md."""
        self.tables += ["", "Bytes that all workers send for a sample: CNN, batch 64, 4 workers, 2 epochs, against docs/algorithms.md", "",
                        "| strategy | bytes | formula | ratio |", "|---|---|---|---|"]
        n, weights, epochs = 4, 4 * WEIGHTS, 2
        end = (n - 1) + ADAM * n * (n - 1)  # sets of weights, when a stretch ends: the servers' weights, and the mean optimizer
        service = 3 * (n - 1) / n           # for each lease: weights, and what is handed in, to owner and copy

        def leases(report):
            return sum(report["staleness"]) + report["dropped_gradients"]

        rows = [("`all_reduce`", ["--strategy", "all_reduce"], lambda r: r["steps"] * 2 * (n - 1)),
                ("`parameter_server`, `async`", ["--strategy", "parameter_server", "--set", "strategy.consistency=async"],
                 lambda r: leases(r) * service + epochs * (n - 1)),
                ("`local_sgd`, `period = 64`, `nesterov`", LOCAL, lambda r: leases(r) * service + epochs * (end + n - 1)),
                ("`elastic_averaging`, `period = 4`", ["--strategy", "elastic_averaging", "--set", "strategy.period=4"],
                 lambda r: leases(r) * service + epochs * end),
                ("`incremental`, `period = 64`", ["--strategy", "incremental", "--set", "strategy.period=64"],
                 lambda r: leases(r) * service + epochs * end),
                ("`gossip`", ["--strategy", "gossip"],
                 lambda r: r["meetings"] * 2 + epochs * (1 + ADAM) * n * (n - 1))]
        with self.workers.faults.folder() as folder:
            for name, flags, formula in rows:
                report = self.report_of(self.run_of(folder, n, epochs, "--set", "strategy.fabric=tcp", "--set", "checkpoint.enabled=false", *flags))
                found, wanted = report["bytes_sent"] / report["samples"], formula(report) * weights / report["samples"]
                self.results["bytes: " + name] = {"bytes": found, "formula": wanted}
                self.tables.append(f"| {name} | {found:.1f} | {wanted:.1f} | {found / wanted:.3f} |")
