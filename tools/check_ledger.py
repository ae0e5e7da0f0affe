#!/usr/bin/env python3
"""Checks a run's ledger.jsonl: every epoch used every sample exactly once.

    tools/check_ledger.py RUN/ledger.jsonl [--samples N] [--epochs E]

The sum and the exclusive-or of the hashed sample numbers are computed again, from 0 to N-1, by
this program alone. Prints OK, or what is wrong with exit code 1.
"""

import argparse
import functools
import json
import sys

MASK = (1 << 64) - 1


def mix64(value):
    """The finaliser of splitmix64."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


@functools.lru_cache
def expected(samples):
    """The sum and the exclusive-or over the samples 0 to samples-1."""
    total, exclusive_or = 0, 0
    for sample in range(samples):
        value = mix64(sample)
        total += value
        exclusive_or ^= value
    return f"{total & MASK:016x}", f"{exclusive_or:016x}"


def check_entry(entry, samples):
    """Yields what is wrong with one epoch; `samples` is the data set's size, or None."""
    counts = {key: entry[key] for key in ("epoch", "samples", "unique", "duplicated", "missing")}
    for key, value in counts.items():
        if type(value) is not int or value < 0:
            yield f"{key} is {value!r}, not a count"
            return
    size = entry["unique"] + entry["missing"]
    if samples is not None and size != samples:
        yield f"the data set has {size} samples, not {samples}"
    if size == 0:
        yield "the data set is empty"
    if entry["missing"]:
        yield f"{entry['missing']} samples were not used"
    if entry["duplicated"]:
        yield f"{entry['duplicated']} samples were used again"
    if entry["samples"] != entry["unique"] + entry["duplicated"]:
        yield f"{entry['samples']} uses are not {entry['unique']} + {entry['duplicated']}"
    # A false size could ask for endless work: it is looked into only if the rest is right.
    if entry["samples"] == size and size <= 1 << 32:
        total, exclusive_or = expected(size)
        if entry["sum"] != total:
            yield f"the sum is {entry['sum']}, expected {total}"
        if entry["xor"] != exclusive_or:
            yield f"the exclusive-or is {entry['xor']}, expected {exclusive_or}"


def check_file(lines, samples, epochs):
    """Returns (the faults found, the number of epochs)."""
    faults, seen = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            place = f"line {number}, epoch {entry['epoch']}"
            faults += [f"{place}: {fault}" for fault in check_entry(entry, samples)]
            seen.append(entry["epoch"])
        except (ValueError, KeyError, TypeError) as error:
            faults.append(f"line {number}: is not an entry of a ledger: {error!r}")
    if not faults and seen != list(range(len(seen))):
        faults.append(f"the epochs are {seen}, not 0 to {len(seen) - 1}, each once")
    if epochs is not None and len(seen) != epochs:
        faults.append(f"there are {len(seen)} epochs, not {epochs}")
    if not seen:
        faults.append("there is no epoch")
    return faults, len(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ledger", help="path of ledger.jsonl")
    parser.add_argument("--samples", type=int, help="the size of the data set")
    parser.add_argument("--epochs", type=int, help="the number of epochs")
    options = parser.parse_args()
    try:
        with open(options.ledger, encoding="utf-8") as file:
            faults, epochs = check_file(file, options.samples, options.epochs)
    except (OSError, UnicodeDecodeError) as error:
        faults, epochs = [str(error)], 0
    for fault in faults:
        print(f"{options.ledger}: {fault}")
    if not faults:
        print(f"OK: {epochs} epochs, each with every sample exactly once")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
