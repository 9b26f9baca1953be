#!/usr/bin/env python3
"""Counts test cases: the cases of each GoogleTest binary that wrote its results, and any other ctest test as one.

usage: count_tests.py CTEST_JUNIT_XML GOOGLETEST_RESULTS_FOLDER

The last line is "N passed, N failed". A binary that died before writing its results is one failure; so is one whose
filter selected no test.
"""
import os
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def cases_of(result_file):
    """(name, passed | failed | skipped) of each case in a GoogleTest result file."""
    for case in ElementTree.parse(result_file).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None:
            yield name, "failed"
        elif case.get("result") == "completed":
            yield name, "passed"
        else:
            yield name, "skipped"


def main():
    junit, results = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    for test in ElementTree.parse(junit).iter("testcase"):
        name, outcome = test.get("name"), {"run": "passed", "fail": "failed"}.get(test.get("status"), "skipped")
        own = results / f"{name}.xml"
        cases = [(f"{name}: {case}", result) for case, result in cases_of(own)] if own.exists() else []
        if own.exists() and not cases and "GTEST_TOTAL_SHARDS" not in os.environ:
            cases.append((f"{name}: no test was selected", "failed"))
        if not cases or (outcome == "failed" and all(result != "failed" for _, result in cases)):
            cases.append((name, outcome))
        for case, result in cases:
            counts[result] += 1
            if result == "failed":
                failures.append(case)
    for failure in failures:
        print("failed:", failure)
    if counts["skipped"]:
        print(counts["skipped"], "skipped")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] or not counts["passed"] else 0


sys.exit(main())
