"""The rows of bench/run of the parameter service: push and pull against PyTorch, one slow worker, and what `sync` costs."""
import contextlib
import os

from faults import Run
from protocol import Program, fail, ratio_text, take_turns, target_text

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SERVICE_KEYS = ["push_pull", "slow_worker", "sync"]
PUSHED_FLOATS = 32 << 20  # 128 MiB
PUSH_TARGET, SLOW_TARGET, SYNC_TARGET = 3.0, 0.9, 0.85
SLOWER, SLOWER_ONE = 10, 3
APART = ["--strategy", "parameter_server", "--set"]


class Rounds(Program):
    """A server of rounds of push and pull (bench/push_pull.cc); the programs of other ranks end with it."""

    others = []

    def timed(self, steps):
        return self.ask(f"run {PUSHED_FLOATS} {steps}")

    def check(self):
        if wrong := self.ask(f"check {PUSHED_FLOATS}"):
            fail(f"{wrong:.0f} floats are wrong after a push and a pull", "a bug of ours or of the benchmark")

    def close(self):
        super().close()
        for other in self.others:
            other.process.wait(timeout=60)


class Part:
    """The part that some of a run's workers have in its speed."""

    def __init__(self, run, part):
        self.run, self.part = run, part

    def sample(self):
        return self.run.sample() / self.part


class ServiceBench:
    """Asks `workers` (class WorkersBench) for cores, and where tables and results go."""

    def __init__(self, workers, free_port):
        self.workers, self.options, self.tables, self.results = workers, workers.options, workers.tables, workers.results
        self.cores, self.free_port = workers.cores, free_port

    def ours(self, servers):
        return Rounds([f"{self.options.build}/bin/push_pull", "--servers", servers], self.cores, about=False, threads=1)

    def peer(self, by, servers):
        """Rank 0; the others end with it."""
        place = {"WORLD_SIZE": str(1 + servers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port()),
                 "GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
        command = [f"{ROOT}/bench/peer_push_pull.py", "--by", by]
        others = [Program(command, self.cores, about=False, threads=1, environment=dict(place, RANK=str(rank)))
                  for rank in range(1, 1 + servers)]
        first = Rounds(command, self.cores, about=False, threads=1, environment=dict(place, RANK="0"))
        first.others = others
        return first

    def measure_push_pull(self):
        self.tables += ["", "Push and pull of 128 MiB (gradient to the servers, their update, weights back), one host; PyTorch moves the "
                        "same bytes and updates nothing", "", "| servers | against | ratio | target | ours, ms | theirs, ms |",
                        "|---|---|---|---|---|---|"]
        for servers in (1, 2):
            for by, name in (("gloo", "Gloo, send and receive"), ("rpc", "PyTorch RPC (TensorPipe)")):
                with contextlib.closing(self.ours(servers)) as ours, contextlib.closing(self.peer(by, servers)) as peer:
                    for program in (ours, peer):
                        program.check()
                        program.calibrate(0.3)
                    row = dict(take_turns(ours, peer, self.options.pairs), target=PUSH_TARGET)
                self.results[f"push_pull_{servers}_{by}"] = row
                self.tables.append(f"| {servers} | {name} | {ratio_text(row)} | {target_text(row)} | {row['ours_s'] * 1e3:.1f} | "
                                   f"{row['peer_s'] * 1e3:.1f} |")

    def run_of(self, folder, workers, *flags):
        run = Run(self.workers.faults, folder, 1, *flags)
        run.command[run.command.index("--workers") + 1] = str(workers)
        return run

    def measure_slow_worker(self):
        """One of 4 workers is slow; against what the other 3 do in a run of 4 that are all well, and against those 3 alone."""
        pairs = max(1, self.options.pairs // 2)
        self.tables += ["", f"One of 4 workers {SLOWER}× slower: CNN, batch 64, `shm`. Its speed, of the part that 3 workers have in that of 4 "
                        "equal ones; and of 3 workers alone, with gradients of the same size, which have the slow one's share of the cores too", "",
                        "| run | of 3 among 4 | target | of 3 alone |", "|---|---|---|---|"]
        ssp = [*APART, "strategy.consistency=ssp"]
        rows = [("`async`", [*APART, "strategy.consistency=async"], ["--set", "training.batch=48"], SLOW_TARGET),
                ("`backup = 1`", [*APART, "strategy.consistency=backup"], ["--set", "strategy.backup=0"], SLOW_TARGET),
                ("`ssp`", ssp, [], SLOW_TARGET),
                ("`ssp`, `ahead = 1`", [*ssp, "--set", "strategy.ahead=1"], [], SLOW_TARGET),
                ("`all_reduce`, `balance = \"even\"`", [], [], None),
                ("`all_reduce`, `balance = \"speed\"`", ["--set", "strategy.balance=speed"], [], None)]
        with self.workers.faults.folder() as folder:
            with open(f"{folder}/slow.toml", "w") as file:
                file.write(f'[[fault]]\naction = "slow"\nworker = {SLOWER_ONE}\nfactor = {SLOWER}\n')
            for name, flags, alone, target in rows:
                slowed = self.run_of(folder, 4, *flags, "--faults", "slow.toml")
                among = take_turns(slowed, Part(self.run_of(folder, 4, *flags), 3 / 4), pairs)
                row = dict(among, target=target)
                three = take_turns(slowed, self.run_of(folder, 3, *flags, *alone), pairs)
                self.results["slow_worker: " + name] = row
                self.results["slow_worker, of 3 alone: " + name] = three
                self.tables.append(f"| {name} | {ratio_text(row)} | {target_text(row)} | {ratio_text(three)} |")

    def measure_sync(self):
        with self.workers.faults.folder() as folder:
            row = dict(take_turns(self.run_of(folder, 2, "--strategy", "parameter_server"), self.run_of(folder, 2),
                                  self.options.pairs), target=SYNC_TARGET)
        self.results["sync"] = row
        self.tables += ["", f"`parameter_server`, `sync`, against `all_reduce`: CNN, 2 workers, `shm`: {ratio_text(row, 3)} of its speed "
                        f"({target_text(row)})."]
