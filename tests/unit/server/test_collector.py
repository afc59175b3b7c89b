"""How many objects Python's garbage collector looks through in a run, in a process that is all broker."""

from __future__ import annotations

import subprocess
import sys

from warren.server.collector import OLD_OBJECTS_MAX, THRESHOLDS

MADE = 1_000_000
SCRIPT = f"""
import gc, weakref
from warren.server.collector import begin_process, tune_process

class Knot:
    def __init__(self):
        self.itself = self

def look(phase, info):
    if phase == "start":
        looked_through.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

begin_process()
before = [[] for _ in range({MADE})]
tune_process()
looked_through = []
gc.callbacks.append(look)
later = [[] for _ in range({MADE})]
knots = [weakref.ref(Knot()) for _ in range({MADE} // 10)]
print(len(looked_through), max(looked_through), sum(knot() is not None for knot in knots))
"""


SET_ASIDE = """
import gc
from warren.server.collector import begin_process, set_aside_new, tune_process

set_aside_new()
print(gc.get_freeze_count())
begin_process()
tune_process()
before = gc.get_freeze_count()
made = [[] for _ in range(1000)]
set_aside_new()
print(gc.get_freeze_count() - before >= 1000)
"""


def test_new_objects_are_set_aside_only_in_a_process_that_is_all_broker() -> None:
    ran = subprocess.run([sys.executable, "-c", SET_ASIDE], capture_output=True, check=True, text=True)
    assert ran.stdout.split() == ["0", "True"]


def test_collector_never_looks_through_very_many_objects_and_still_finds_garbage() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True, text=True)
    rounds, most, left = map(int, ran.stdout.split())
    young, middle, _ = THRESHOLDS
    assert rounds >= MADE // young // 2
    assert most <= OLD_OBJECTS_MAX + 2 * (middle + 2) * young
    assert left <= 2 * young
