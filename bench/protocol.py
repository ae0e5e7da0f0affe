"""The protocol of bench/run: programs that take turns, and what is made of their times."""
import json
import os
import shlex
import subprocess
import sys


def fail(message, hint):
    sys.exit(f"error: {message}\nhint: {hint}")


def quantile(values, q):
    """By linear interpolation between the sorted values."""
    ordered, at = sorted(values), q * (len(values) - 1)
    low, high = int(at), min(int(at) + 1, len(values) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def run_command(command, hint):
    """Runs it to its end; what it wrote is shown when it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        fail(f"`{shlex.join(words)}` failed:\n{done.stdout}", hint)


class Program:
    """A server of measurements (bench/server.h), pinned to cores."""

    def __init__(self, command, cores, about=True, threads=None, environment=None):
        threads = str(threads or len(cores))
        variables = dict(os.environ, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, **(environment or {}))
        self.command = [str(word) for word in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=variables, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.about = json.loads(self.answer()) if about else {}
        self.steps = 1

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            fail(f"`{shlex.join(self.command)}` ended with code {self.process.wait()}", "run it by hand to see why")
        return line

    def tell(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()

    def ask(self, question):
        self.tell(question)
        return json.loads(self.answer())

    def timed(self, steps):
        """Seconds of so many steps."""
        return self.ask(f"run {steps}")

    def calibrate(self, seconds):
        """Finds how many steps take about `seconds`."""
        self.steps = 1
        self.timed(1)
        while (taken := self.timed(self.steps)) < seconds / 4 and self.steps < 1 << 20:
            self.steps *= 2 if taken > seconds / 16 else 8
        self.steps = max(1, round(self.steps * seconds / taken))

    def sample(self):
        """Seconds per step."""
        return self.timed(self.steps) / self.steps

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Group(Program):
    """Programs that are told the same, and do it together; the first one's answers count."""

    def __init__(self, programs):
        self.programs = programs
        self.about = json.loads(self.answer())
        self.steps = 1

    def answer(self):
        return [program.answer() for program in self.programs][0]

    def tell(self, question):
        for program in self.programs:
            program.tell(question)

    def close(self):
        for program in self.programs:
            program.process.stdin.close()
        for program in self.programs:
            program.process.wait()


def take_turns(ours, peer, pairs):
    """A B B A, so many times. How often ours fits into the peer's time, and all that was measured."""
    taken = []
    for _ in range(pairs):
        a1, b1, b2, a2 = ours.sample(), peer.sample(), peer.sample(), ours.sample()
        taken.append({"ours": [a1, a2], "peer": [b1, b2], "ratio": (b1 + b2) / (a1 + a2)})
    ratios = [pair["ratio"] for pair in taken]
    return {"ratio": quantile(ratios, 0.5), "quartiles": [quantile(ratios, 0.25), quantile(ratios, 0.75)],
            "ours_s": quantile([s for pair in taken for s in pair["ours"]], 0.5),
            "peer_s": quantile([s for pair in taken for s in pair["peer"]], 0.5), "pairs": taken}


def ratio_text(row, digits=2):
    low, high = row["quartiles"]
    return f"{row['ratio']:.{digits}f}× [{low:.{digits}f}–{high:.{digits}f}]"


def target_text(row):
    if row.get("target") is None:
        return "–"
    return f"≥ {row['target']:g}× " + ("met" if row["ratio"] >= row["target"] else "**missed**")
