"""Runs scripts/check_trace.py over made-up traces: it must find what is wrong with them."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/check_trace.py"


def piece(name="a", ts=0.0, dur=10.0, thread=1):
    return {"name": name, "ph": "X", "ts": ts, "dur": dur, "pid": 1, "tid": thread, "cat": "sync", "args": {}}


def arrow(phase, ts, number=1):
    end = {"bp": "e"} if phase == "f" else {}
    return {"name": "computes", "ph": phase, "ts": ts, "pid": 1, "tid": 1, "cat": "flow", "id": number, **end}


def check(*events):
    """Exit status and what is printed."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"traceEvents": list(events)}, file)
        file.flush()
        result = subprocess.run([sys.executable, SCRIPT, file.name], capture_output=True, text=True, check=False)
        return result.returncode, result.stdout


class CheckTrace(unittest.TestCase):
    def test_a_trace_that_is_right_passes(self):
        status, text = check(piece(), piece("b", 1, 5), piece("c", 6, 4), arrow("s", 2), arrow("f", 7))
        self.assertEqual(status, 0, text)
        self.assertIn("3 slices, 1 arrows, 0 counters; 0 problems", text)

    def test_slices_have_to_nest(self):
        self.assertIn("ends after the one that it began in", check(piece(), piece("b", 5, 10))[1])
        self.assertEqual(check(piece(), piece("b", 5, 10, thread=2))[0], 0)

    def test_fields_are_there(self):
        event = piece()
        del event["dur"]
        self.assertIn("dur is None", check(event)[1])
        self.assertIn("ts is negative", check(piece(ts=-1.0))[1])
        self.assertIn("unknown phase", check({"ph": "?"})[1])

    def test_arrows_have_two_ends_in_slices(self):
        self.assertIn("has the ends s", check(piece(), arrow("s", 2))[1])
        self.assertIn("is in no slice", check(piece(), arrow("s", 2), arrow("f", 20))[1])


if __name__ == "__main__":
    unittest.main()
