#!/usr/bin/env python3
"""Runs a program of several ranks in which something goes wrong, and looks at how it ends.

usage: faults.py MPIRUN_SCRIPT MPIRUN PROGRAM

Whatever happens to a rank, the program ends within a time, no rank ends with another result, those that see it say
which rank it was and what it did, and no file is written half. FERMATA_FAULT_COUNT random faults (one of each kind), of
the seed FERMATA_SEED (1).
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

LIMIT = 60  # seconds for one run: many times what it takes. Those in which all of this is stopped do not count.
TICK = 0.05
STEPS = 6
# What the rank does (up to a comma), what is set, what the others say, how many say it: "some" or "all" of the ranks but it.
SCENARIOS = {
    "none": ({}, None),
    "slow": ({}, None),
    "killed before": ({}, r""),
    "killed soon": ({}, r""),
    "killed recording": ({}, r""),
    "killed in plan": ({}, r""),
    "killed saving": ({}, r""),
    "stops others": ({"FERMATA_COLLECTIVE_TIMEOUT": "3"}, None),
    "throws": ({}, r"FM7006 CollectiveError: .*rank {rank} (has exited|has died|is running|has failed)"),
    "returns": ({}, r"FM7006 CollectiveError: .*rank {rank} has exited; (its last call is \w+ at \S*faults.cpp:\d+|it has made no call)"),
    "stuck": ({"FERMATA_COLLECTIVE_TIMEOUT": "1"},
              r"FM7006 CollectiveError: .*timed out after 1 s \(rank {rank} is running; (its last call is \w+ at \S*faults.cpp:\d+|it has made no call)"),
    "other op, unchecked": ({}, r"FM7007 CollectiveError: \w+: ranks \d and \d make different calls\n  rank \d +\w+ of \d+"),
    "other size, unchecked": ({}, r"FM7007 CollectiveError: \w+: ranks \d and \d make different calls\n  rank \d +\w+ of \d+"),
    "other op": ({"FERMATA_CHECK_COLLECTIVES": "1"}, r"FM7007 CollectiveError: "),
    "other size": ({"FERMATA_CHECK_COLLECTIVES": "1"}, r"FM7007 CollectiveError: "),
}


def is_whole(file):
    with open(file, "rb") as stream:
        data = stream.read()
    return data[:6] == b"\x93NUMPY" and len(data) == 128 + 4 * 1000


def missing_blocks(folder, ranks):
    """Of the checkpoint in a folder, if there is one: all files that the index names are there, and whole."""
    index = os.path.join(folder, "run.safetensors.index.json")
    if not os.path.exists(index):
        return []
    with open(index) as stream:
        files = set(json.load(stream)["weight_map"].values())
    missing = [f for f in files if not is_block(os.path.join(folder, f))]
    return missing if len(files) == ranks else [f"{len(files)} files of {ranks} ranks"]


def is_block(file):
    if not os.path.exists(file):
        return False
    with open(file, "rb") as stream:
        data = stream.read()
    return len(data) == 8 + int.from_bytes(data[:8], "little") + 4 * 1000


def run(command, scenario, rank, step, ranks, mode):
    variables, _ = SCENARIOS[scenario]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        ticks = 0
        process = subprocess.Popen([command[0], command[1], str(ranks), command[2], scenario.split(",")[0], str(rank), str(step), mode, folder],
                                   stdout=output, stderr=subprocess.STDOUT,
                                   env={**os.environ, "FERMATA_COLLECTIVE_TIMEOUT": "20", **variables})
        while process.poll() is None and ticks * TICK < LIMIT:
            time.sleep(TICK)
            ticks += 1
        hangs = process.poll() is None
        process.kill()
        process.wait()
        output.seek(0)
        text = output.read()
        if hangs:
            return None, text, ticks * TICK, []
        broken = [f for f in os.listdir(folder) if f.endswith(".npy") and not is_whole(os.path.join(folder, f))]
        broken += missing_blocks(folder, ranks)
        return process.returncode, text, ticks * TICK, broken


def problem(scenario, rank, result, wanted):
    status, text, _, broken = result
    if status is None:
        return "it hangs"
    if broken:
        return f"written half: {broken}"
    results = set(re.findall(r"result (\S+)", text))
    if results - {wanted}:
        return f"other results: {results}"
    _, expected = SCENARIOS[scenario]
    if expected is None:
        return None if status == 0 and results else "it fails"
    if status == 0:
        return "it ends well"
    if expected and not re.search(expected.format(rank=rank), text):
        return "no rank says what has happened"
    return None


def main():
    command = sys.argv[1:4]
    seed, count = int(os.environ.get("FERMATA_SEED", "1")), int(os.environ.get("FERMATA_FAULT_COUNT", str(len(SCENARIOS))))
    choice = random.Random(seed)
    wanted, failures, slowest = {}, 0, 0.0
    names = list(SCENARIOS)
    for number in range(count):
        scenario = names[number % len(names)]
        ranks = choice.choice([2, 2, 3])
        rank, step, mode = choice.randrange(ranks), choice.randrange(STEPS - 1), choice.choice(["eager", "compiled"])
        if ranks not in wanted:
            first = run(command, "none", 0, 0, ranks, "eager")
            wanted[ranks] = (re.findall(r"result (\S+)", first[1]) or ["none"])[0]
        result = run(command, scenario, rank, step, ranks, mode)
        slowest = max(slowest, result[2])
        what = problem(scenario, rank, result, wanted[ranks])
        if what:
            failures += 1
            print(f"{what}: {scenario!r} at step {step} of rank {rank} of {ranks}, {mode}\n{result[1]}")
    print(f"{count} faults of seed {seed}, {failures} with another end than they should have; the longest took {slowest:.1f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
