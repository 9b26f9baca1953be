#!/usr/bin/env python3
"""Checks a trace that fm::save(profile, path) or FERMATA_PROFILE has written.

usage: check_trace.py TRACE.json [--processor FILE]

First against the format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Slices of a
thread must nest, because readers drop those that do not, and both ends of an arrow must lie in slices. Then, where the
Python package perfetto and its trace processor are there (the package loads that from the network; --processor names
the file of one), by what Perfetto makes of it: as many slices, arrows and counters as the file has, and no complaint.

The last line counts slices, arrows and counters. The exit status is 1 if something is wrong.
"""
import argparse
import collections
import json
import sys

COMMON = {"name": str, "ph": str, "pid": int, "tid": int}
MORE = {
    "X": {"ts": (int, float), "dur": (int, float), "cat": str, "args": dict},
    "i": {"ts": (int, float), "s": str, "cat": str, "args": dict},
    "C": {"ts": (int, float), "args": dict},
    "s": {"ts": (int, float), "cat": str, "id": int},
    "f": {"ts": (int, float), "cat": str, "id": int, "bp": str},
    "M": {"args": dict},
}
CLOSE = 0.0005  # microseconds: times have three digits after the point


def fields(number, event):
    """What is wrong with the fields of one event."""
    if not isinstance(event, dict) or event.get("ph") not in MORE:
        yield f"event {number}: unknown phase {event.get('ph') if isinstance(event, dict) else event!r}"
        return
    for key, kind in {**COMMON, **MORE[event["ph"]]}.items():
        if not isinstance(event.get(key), kind) or isinstance(event.get(key), bool):
            yield f"event {number} ({event['ph']}): {key} is {event.get(key)!r}"
    for key in ("ts", "dur"):
        if isinstance(event.get(key), (int, float)) and event[key] < 0:
            yield f"event {number} ({event['ph']}): {key} is negative"
    if event["ph"] == "C" and not all(isinstance(v, (int, float)) for v in event.get("args", {}).values()):
        yield f"event {number}: a counter that is no number"


def nesting(slices):
    """Slices of one thread that overlap without one containing the other."""
    open_ends = []
    for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
        while open_ends and open_ends[-1] <= event["ts"] + CLOSE:
            open_ends.pop()
        end = event["ts"] + event["dur"]
        if open_ends and end > open_ends[-1] + CLOSE:
            yield f"slice {event['name']} at {event['ts']} ends after the one that it began in"
        open_ends.append(end)


def check_format(trace):
    """(what is wrong, counts by phase)."""
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        return ["there is no list traceEvents"], {}
    wrong = [problem for number, event in enumerate(events) for problem in fields(number, event)]
    counts = collections.Counter(event["ph"] for event in events if isinstance(event, dict) and "ph" in event)
    if wrong:
        return wrong, counts
    threads = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    for slices in threads.values():
        wrong += nesting(slices)
    ends = collections.defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            ends[event["id"]].append(event["ph"])
            if not any(s["ts"] - CLOSE <= event["ts"] <= s["ts"] + s["dur"] + CLOSE for s in threads[event["pid"], event["tid"]]):
                wrong.append(f"an arrow ({event['ph']}) at {event['ts']} is in no slice")
    wrong += [f"arrow {number} has the ends {''.join(phases)}" for number, phases in ends.items() if sorted(phases) != ["f", "s"]]
    return wrong, counts


def check_by_perfetto(path, counts, processor_file):
    """What Perfetto's trace processor makes of the file; None where there is no such processor."""
    try:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
        processor = TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=processor_file))
    except Exception as error:  # the package is missing, or what it wants to load
        print(f"without Perfetto's trace processor: {type(error).__name__}: {str(error)[:200]}")
        return None

    def number(query):
        return next(iter(processor.query(query))).n

    wrong = []
    for what, query, wanted in (("slices", "select count(*) as n from slice", counts["X"] + counts["i"]),
                                ("arrows", "select count(*) as n from flow", counts["s"]),
                                ("counters", "select count(*) as n from counter", counts["C"])):
        if number(query) != wanted:
            wrong.append(f"Perfetto finds {number(query)} {what} of {wanted}")
    for row in processor.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0"):
        wrong.append(f"Perfetto: {row.name} {row.value}")
    processor.close()
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--processor", help="a file trace_processor_shell")
    options = parser.parse_args()
    with open(options.trace, encoding="utf-8") as file:
        wrong, counts = check_format(json.load(file))
    if not wrong:
        wrong = check_by_perfetto(options.trace, counts, options.processor) or []
    for problem in wrong[:20]:
        print(problem)
    print(f"{counts.get('X', 0)} slices, {counts.get('s', 0)} arrows, {counts.get('C', 0)} counters; {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
