import numpy as np

from benchmarks.committer import batches
from benchmarks.sources import ids, key
from benchmarks.world import TASKS
from state_lib.keys import partition_for


def test_keys_come_sorted_to_their_own_tasks() -> None:
    seen = []
    for batch in batches(np.arange(1000)[::-1], 300):
        assert len(batch) == TASKS
        for task, keys in enumerate(batch):
            listed = keys.to_pylist()
            assert listed == sorted(listed)
            assert {partition_for(k, TASKS) for k in listed} == {task}
            seen += listed
    assert sorted(seen) == [key(i) for i in range(1000)]


def test_kinds_of_keys_are_the_same_at_every_call() -> None:
    assert sorted(ids("distinct", 1000)) == list(range(1000))
    zipf = ids("zipf", 1000)
    assert (zipf == ids("zipf", 1000)).all()
    assert len(set(zipf.tolist())) < 1000
