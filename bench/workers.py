"""The rows of bench/run with several processes: all-reduce, training with workers, memory, launch."""
import contextlib
import glob
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from apart import APART_KEYS, ApartBench
from faults import FAULT_KEYS, FaultsBench
from growth import GROWTH_KEYS, GrowthBench
from protocol import Group, Program, fail, quantile, ratio_text, take_turns, target_text
from service import SERVICE_KEYS, ServiceBench

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ALL_REDUCE_KEYS = ["all_reduce", "all_reduce_4"]
WORKER_KEYS = ALL_REDUCE_KEYS + ["ddp", "workers", "workers_memory", "launch"] + GROWTH_KEYS + FAULT_KEYS + SERVICE_KEYS + APART_KEYS
NAMES = {"cnn": "CNN", "mlp": "MLP 784-256-10", "large": "MLP 1024-4096-4096-10", "residual": "residual CNN"}

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8, KIB, 8 * KIB, 64 * KIB, MIB, 4 * MIB, 32 * MIB, 128 * MIB]
# Up to 64 KiB: at most 1.5 times the bare sum's time; from 1 MiB: at least 80% of its rate.
SMALL = {"bare": 1 / 1.5, "gloo": 50, "openmpi": 1.5}
LARGE = {"bare": 0.8, "gloo": 8, "openmpi": 5}
GLOO = ["ring", "bcube", "halving_doubling", "ring_chunked"]
TUNED = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm"]
OPENMPI = {"default": [], "recursive doubling": TUNED + ["3"], "ring": TUNED + ["4"], "Rabenseifner": TUNED + ["6"]}

DDP_ROWS = [("cnn", 64, 10.0), ("mlp", 64, 8.0), ("large", 256, 2.5)]
# model, batch, target of the ratio of 2 workers to 1: 97% and 90% of 2.
SCALING_ROWS = [("cnn", 64, 1.94), ("residual", 64, 1.94), ("large", 256, 1.8)]
SHARDS = (2, 8)
LAUNCH_WORKERS = 8
LAUNCH_JOB = """name = "launch"
shards = 8
[data]
source = "synthetic"
samples = 64
features = [784]
classes = 10
[[model.layers]]
type = "dense"
units = 256
activation = "relu"
[[model.layers]]
type = "dense"
units = 10
[training]
epochs = 1
batch = 64
"""


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


class Reducer(Program):
    """A server of all-reduces (bench/all_reduce_server.h)."""

    def __init__(self, command, cores, name, folder=None):
        super().__init__(command, cores, about=False, threads=1)
        self.name, self.folder, self.floats = name, folder, 1

    def timed(self, steps):
        return self.ask(f"run {self.floats} {steps}")

    def use(self, size, seconds, sums=True):
        self.floats = size // 4
        wrong = self.ask(f"check {self.floats}") if sums else 0
        if wrong:
            fail(f"{self.name}: {wrong:.0f} sums of {self.floats} floats are wrong",
                 "a bug of ours or of the benchmark; its figures would mean nothing")
        self.calibrate(seconds)

    def close(self):
        super().close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


class WorkersBench:
    """Asks `bench` (class Bench of bench/run) for cores, our programs and the ceiling."""

    def __init__(self, bench):
        self.bench, self.options = bench, bench.options
        self.cores = bench.cores[2] if bench.two_cores else bench.cores[1]
        self.seconds = 0.02 if self.options.quick else 0.1
        self.tables, self.results = [], {}
        self.faults = FaultsBench(self)
        self.growth = GrowthBench(self)
        self.service = ServiceBench(self, free_port)
        self.apart = ApartBench(self)

    def check_peers(self, wanted):
        """Refuses before anything is measured when a peer is missing."""
        missing = []
        if any(key in ALL_REDUCE_KEYS for key in wanted):
            if not shutil.which("mpirun"):
                missing.append("mpirun (openmpi-bin)")
            if not glob.glob("/usr/include/gloo/allreduce.h"):
                missing.append("gloo/allreduce.h (libgloo-dev)")
            if not glob.glob("/usr/lib/*/openmpi/include/mpi.h"):
                missing.append("mpi.h (libopenmpi-dev)")
        if any(key in wanted for key in ("ddp", "ddp_kill", "push_pull")):
            missing += [f"{name} (python3-{name})" for name in ("torch", "numpy") if not importlib.util.find_spec(name)]
        if missing:
            fail("peers are missing: " + ", ".join(missing), "`tools/install_packages bench` installs them")
        if any(key in WORKER_KEYS for key in wanted) and not self.bench.two_cores:
            fail("rows with workers need two cores", "run it on a machine with two, or leave out --rows " + ",".join(WORKER_KEYS))

    def run(self, wanted):
        for key in WORKER_KEYS:
            if key in wanted:
                print(f"measuring {key}", file=sys.stderr, flush=True)
                owners = {self.faults: FAULT_KEYS, self.growth: GROWTH_KEYS, self.service: SERVICE_KEYS, self.apart: APART_KEYS}
                owner = next((one for one, keys in owners.items() if key in keys), self)
                getattr(owner, "measure_" + key)()

    # All-reduce.

    def ours(self, world=2, result="own"):
        return Reducer([f"{self.options.build}/bin/all_reduce", "--world", world, "--result", result], self.cores, "ours")

    def gloo(self, algorithm, world=2):
        folder = tempfile.mkdtemp(prefix="starling_bench_")
        return Reducer([f"{self.options.peer_build}/peer_gloo/gloo_peer", "--world", world, "--store", folder, "--algorithm",
                        algorithm], self.cores, algorithm, folder)

    def openmpi(self, name, world=2):
        folder = tempfile.mkdtemp(prefix="starling_bench_")
        for rank in range(1, world):
            os.mkfifo(f"{folder}/{rank}")
        command = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", world, *OPENMPI[name]]
        return Reducer([*command, f"{self.options.peer_build}/peer_openmpi/openmpi_peer", "--control", folder], self.cores,
                       name, folder)

    def best_of(self, programs, size):
        """The fastest for this size, and what each took."""
        for program in programs:
            program.use(size, self.seconds)
        times = {program.name: min(program.sample() for _ in range(3)) for program in programs}
        return min(programs, key=lambda program: times[program.name]), times

    def measure_all_reduce(self):
        ours, shared = self.ours(), self.ours(result="shared")
        bare = Reducer([f"{self.options.build}/bin/bare_sum", "--world", 2], self.cores, "bare sum")
        reading = Reducer([f"{self.options.build}/bin/bare_sum", "--world", 2, "--only", "read"], self.cores, "reading")
        gloos, mpis = [self.gloo(name) for name in GLOO], [self.openmpi(name) for name in OPENMPI]
        rows = []
        for size in SIZES:
            for program in (ours, shared, bare):
                program.use(size, self.seconds)
            reading.use(size, self.seconds, sums=False)
            targets = SMALL if size <= 64 * KIB else LARGE
            row = {"bytes": size, "bare": take_turns(ours, bare, self.options.pairs),
                   "shared": take_turns(shared, bare, self.options.pairs)}
            for key, programs in (("gloo", gloos), ("openmpi", mpis)):
                peer, tried = self.best_of(programs, size)
                row[key] = take_turns(ours, peer, self.options.pairs)
                row[key].update(setting=peer.name, tried=tried)
                if row[key]["ratio"] < targets[key]:
                    row[key]["most"] = take_turns(reading, peer, self.options.pairs)
            for key in ("bare", "gloo", "openmpi"):
                row[key]["target"] = targets[key]
            row["shared"]["target"] = targets["bare"]
            rows.append(row)
            print(f"  {size_text(size)}: {row['bare']['ratio']:.2f}× bare, {row['gloo']['ratio']:.1f}× Gloo, "
                  f"{row['openmpi']['ratio']:.2f}× Open MPI", file=sys.stderr, flush=True)
        for program in (ours, shared, bare, reading, *gloos, *mpis):
            program.close()
        self.results["all_reduce"] = rows
        self.tables += self.all_reduce_table(rows)

    def all_reduce_table(self, rows):
        copy = self.bench.ceiling(2)["copy_gb_s"]
        # In place the bare sum reads and writes both arrays: as much as copying them once.
        bare = 2 * rows[-1]["bytes"] / rows[-1]["bare"]["peer_s"] / 1e9
        text = ["", f"All-reduce in shared memory, 2 processes on 2 cores, f32, in place; the bare sum of {size_text(SIZES[-1])} "
                f"moves {bare:.1f} GB/s, memcpy {copy:.1f} GB/s. Ratios are of rates: above 1, ours is faster. Gloo and Open MPI "
                f"with the fastest of their algorithms for each size; versions {package_version('libgloo-dev')} and "
                f"{package_version('libopenmpi-dev')} (2022).", "",
                "| size | ours µs | GB/s | bare sum µs | against bare | target | one shared result, against bare | against Gloo "
                "| target | against Open MPI | target |", "|" + "---|" * 11]
        for row in rows:
            cells = [size_text(row["bytes"]), f"{row['bare']['ours_s'] * 1e6:.4g}", f"{row['bytes'] / row['bare']['ours_s'] / 1e9:.3g}",
                     f"{row['bare']['peer_s'] * 1e6:.4g}", ratio_text(row["bare"]), target_text_of_rate(row["bare"]),
                     ratio_text(row["shared"])]
            for key in ("gloo", "openmpi"):
                peer = row[key]
                most = f"; reading both arrays and no more: {ratio_text(peer['most'], 1)}" if "most" in peer else ""
                cells += [f"{ratio_text(peer, 1)}, {peer['setting']}, {peer['peer_s'] * 1e6:.4g} µs", target_text(peer) + most]
            text.append("| " + " | ".join(cells) + " |")
        if bare < 0.6 * copy:
            text += ["", "**The bare sum is slow beside memcpy here: it is no good yardstick in this run.**"]
        return text

    def measure_all_reduce_4(self):
        two, four = self.ours(2), self.ours(4)
        rows = []
        for size in (KIB, 64 * KIB, MIB, 32 * MIB):
            for program in (two, four):
                program.use(size, self.seconds)
            turns = take_turns(four, two, self.options.pairs)
            # Four arrays are summed where two were: the same rate would take twice as long.
            rows.append({"bytes": size, **turns, "conservation": 2 * turns["ratio"]})
        two.close(), four.close()
        self.results["all_reduce_4"] = rows
        self.tables += ["", "All-reduce of 4 processes on 2 cores. Conservation is the rate at which arrays are summed, against "
                        "that of 2 processes; there is no scaling to speak of.", "", "| size | 4 processes µs | 2 processes µs | "
                        "conservation |", "|" + "---|" * 4]
        self.tables += [f"| {size_text(row['bytes'])} | {row['ours_s'] * 1e6:.4g} | {row['peer_s'] * 1e6:.4g} | "
                        f"{row['conservation']:.0%} |" for row in rows]

    # Training.

    def workers(self, model, batch, count, shards, cores, rate=1e-6, own=False):
        """`own`: each has a model of its own, and they only meet after every step."""
        peer = [f"{self.options.build}/bin/starling_peer", "--model", model, "--batch", batch, "--lanes", 1, "--shards", shards,
                "--rate", rate, "--own", int(own)]
        launch = [] if count == 1 else [f"{self.options.build}/bin/starling", "launch", "-n", count, "--lanes", 1, "--"]
        return Program(launch + peer, cores, threads=1)

    def ddp(self, model, batch, rate=1e-6, layout="nchw", bucket_mb=25):
        keeps = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 31), "MALLOC_TOP_PAD_": str(64 << 20)}
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
        if self.options.peer_malloc == "keeps":
            place.update(keeps)
        command = [f"{ROOT}/bench/peer_ddp.py", "--model", model, "--batch", batch, "--layout", layout, "--bucket-mb", bucket_mb,
                   "--rate", rate]
        # Group reads what each says of itself, which comes when all have met.
        group = Group([Program(command, {core}, about=False, threads=1, environment=dict(place, RANK=str(rank)))
                       for rank, core in enumerate(sorted(self.cores))])
        group.setting = ", ".join([layout] * (model == "cnn") + [f"buckets of {bucket_mb} MB"])
        return group

    def check_same_work(self, model, batch):
        with contextlib.closing(self.workers(model, batch, 2, 2, self.cores, 1e-3)) as ours, \
                contextlib.closing(self.ddp(model, batch, 1e-3)) as peer:
            for steps in (1, 4):
                a, b = ours.ask(f"loss {steps}"), peer.ask(f"loss {steps}")
                if not abs(a - b) <= 2e-3 * abs(b):
                    fail(f"{NAMES[model]}: our loss is {a:.6f} and that of PyTorch DDP {b:.6f}: they don't do the same work",
                         "a bug of ours or of the benchmark; its figures would mean nothing")

    def best_ddp(self, model, batch):
        best, tried = None, {}
        for layout in ("nchw", "channels_last") if model == "cnn" else ("nchw",):
            for bucket_mb in (25, 100) if model == "large" else (25,):
                program = self.ddp(model, batch, layout=layout, bucket_mb=bucket_mb)
                program.calibrate(3 * self.seconds)
                tried[program.setting] = min(program.sample() for _ in range(9))
                if best is None or tried[program.setting] < tried[best.setting]:
                    program, best = best, program
                if program:
                    program.close()
        return best, tried

    def measure_ddp(self):
        rows = []
        for model, batch, target in DDP_ROWS:
            self.check_same_work(model, batch)
            peer, tried = self.best_ddp(model, batch)
            for shards in SHARDS:
                with contextlib.closing(self.workers(model, batch, 2, shards, self.cores)) as ours:
                    ours.calibrate(3 * self.seconds)
                    rows.append({"model": NAMES[model], "batch": batch, "shards": shards, "target": target,
                                 "setting": peer.setting, "tried": tried, **take_turns(ours, peer, self.options.pairs)})
                print(f"  {NAMES[model]}, S = {shards}: {rows[-1]['ratio']:.2f}×", file=sys.stderr, flush=True)
            peer.close()
        self.results["ddp"] = rows
        self.tables += ["", f"Training, 2 workers, one core each, f32, against PyTorch {package_version('python3-torch')} (2022) with "
                        "DistributedDataParallel over Gloo, 2 processes, one thread each, the same batch in all.", "",
                        "| model | batch | S | ratio | target | ours ms | DDP ms | its settings |", "|" + "---|" * 8]
        self.tables += [f"| {row['model']} | {row['batch']} | {row['shards']} | {ratio_text(row)} | {target_text(row)} | {row['ours_s'] * 1e3:.4g} | "
                        f"{row['peer_s'] * 1e3:.4g} | {row['setting']} |" for row in rows]

    def in_step(self, model, batch, shards):
        """How much longer half a batch takes one process when another does the same, and they meet after every step."""
        with contextlib.closing(self.workers(model, batch // 2, 1, shards // 2, self.bench.cores[1])) as alone, \
                contextlib.closing(self.workers(model, batch // 2, 2, shards // 2, self.cores, own=True)) as together:
            alone.calibrate(3 * self.seconds), together.calibrate(3 * self.seconds)
            return 1 / take_turns(together, alone, self.options.pairs)["ratio"]

    def two_at_once(self, model, batch, shards):
        """How much longer a step of one worker takes while another process does the same beside it."""
        programs = [self.workers(model, batch, 1, shards, {core}) for core in sorted(self.cores)]
        for program in programs:
            program.calibrate(3 * self.seconds)
        slower = []
        for _ in range(self.options.pairs):
            alone = [program.sample() for program in programs]
            for program in programs:
                program.tell(f"run {program.steps}")
            together = [float(program.answer()) / program.steps for program in programs]
            slower.append(sum(together) / sum(alone))
        for program in programs:
            program.close()
        return quantile(slower, 0.5)

    def measure_workers(self):
        rows = []
        for model, batch, target in SCALING_ROWS:
            for shards in SHARDS:
                with contextlib.closing(self.workers(model, batch, 1, shards, self.bench.cores[1])) as one, \
                        contextlib.closing(self.workers(model, batch, 2, shards, self.cores)) as two:
                    one.calibrate(3 * self.seconds), two.calibrate(3 * self.seconds)
                    turns = take_turns(two, one, self.options.pairs)
                rows.append({"model": NAMES[model], "batch": batch, "shards": shards, "target": target, **turns,
                             "two_at_once": self.two_at_once(model, batch, shards),
                             "in_step": self.in_step(model, batch, shards)})
                print(f"  {NAMES[model]}, S = {shards}: {rows[-1]['ratio']:.2f}×", file=sys.stderr, flush=True)
        self.results["workers"] = rows
        self.tables += ["", "Training, 1 → 2 workers, one core each, f32. The ceiling is that of two processes with a "
                        "worker each that have nothing to do with each other: they share caches and memory too. Those in step have half "
                        "of the batch each and a whole update, and meet after every step: what disturbs one makes the other wait.", "",
                        "| model | batch | S | ratio | target | 2 workers ms | 1 worker ms | of 2 | ceiling | in step |",
                        "|" + "---|" * 10]
        self.tables += [f"| {row['model']} | {row['batch']} | {row['shards']} | {ratio_text(row)} | {target_text(row)} | {row['ours_s'] * 1e3:.4g} | "
                        f"{row['peer_s'] * 1e3:.4g} | {row['ratio'] / 2:.0%} | {2 / row['two_at_once']:.2f}× | {2 / row['in_step']:.2f}× |" for row in rows]

    def measure_workers_memory(self):
        rows = []
        for count in (1, 8):
            with contextlib.closing(self.workers("large", 256, count, 8, self.cores)) as program:
                program.ask("run 1")
                processes = children_of(program.process.pid) if count > 1 else [program.process.pid]
                shared, total = zip(*(pss_of(process) for process in processes))
                state = program.about["state_bytes"]
                rows.append({"workers": count, "state": sum(shared) if count > 1 else state, "total": sum(total), "bytes": state})
        ratio = rows[1]["state"] / rows[0]["state"]
        self.results["workers_memory"] = rows
        self.tables += ["", f"Memory, {NAMES['large']}, S = 8, Adam. Weights and optimizer state of 8 workers are {ratio:.2f}× those "
                        f"of one (target ≤ 1.1×: {'met' if ratio <= 1.1 else '**missed**'}). Their memory is what the kernel counts "
                        "for it (Pss), over all processes; \"all\" has gradients, activations and packed weights too.", "",
                        "| workers | weights and optimizer state MiB | all MiB |", "|" + "---|" * 3]
        self.tables += [f"| {row['workers']} | {row['state'] / MIB:.1f} | {row['total'] / MIB:.1f} |" for row in rows]

    def measure_launch(self):
        with tempfile.TemporaryDirectory(prefix="starling_bench_") as folder:
            with open(f"{folder}/launch.toml", "w") as file:
                file.write(LAUNCH_JOB)
            taken = []
            for _ in range(self.options.pairs):
                begin = time.perf_counter()
                subprocess.run([os.path.abspath(f"{self.options.build}/bin/starling"), "train", "launch.toml", "--workers",
                                str(LAUNCH_WORKERS), "--lanes", "1", "--no-progress", "--overwrite"], cwd=folder, check=True,
                               stdout=subprocess.DEVNULL)
                taken.append(time.perf_counter() - begin)
        median = quantile(taken, 0.5)
        self.results["launch"] = taken
        self.tables += ["", f"Launch: {LAUNCH_WORKERS} workers, from the command to its end after one step, results written: "
                        f"{median * 1e3:.0f} ms [{quantile(taken, 0.25) * 1e3:.0f}–{quantile(taken, 0.75) * 1e3:.0f}] (target: the "
                        f"first step within 1 s: {'met' if median < 1 else '**missed**'})."]


def target_text_of_rate(row):
    return f"≥ {row['target']:.2g} " + ("met" if row["ratio"] >= row["target"] else "**missed**")


def package_version(name):
    found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], stdout=subprocess.PIPE, text=True)
    return found.stdout or "of unknown version"


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children_of(process):
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(word) for word in file.read().split()]


def pss_of(process):
    """Bytes of the shared weights and optimizer state, and of all, each page by its number of users."""
    state, total, in_state = 0, 0, False
    with open(f"/proc/{process}/smaps") as file:
        for line in file:
            if line.startswith("Pss:"):
                bytes_ = int(line.split()[1]) * KIB
                total += bytes_
                state += bytes_ if in_state else 0
            elif not line.split(" ", 1)[0].endswith(":"):
                in_state = "memfd:starling-starling state" in line
    return state, total
