"""Which pods count as being there: one that owns a claim and is gone loses it."""

import pytest

from driver.nri.pods import Pods

LIFE = {
    "a pod that nobody has told of is not there": ([], False),
    "one with a sandbox is there": (["run s"], True),
    "one whose sandbox has stopped is not": (["run s", "stop s"], False),
    "nor one whose sandbox is removed without having stopped": (["run s", "remove s"], False),
    "a second sandbox keeps it there": (["run s", "run t", "stop s"], True),
    "and it is there again with a new one": (["run s", "stop s", "remove s", "run t"], True),
    "a list brings it": (["list s"], True),
    "a list without it takes it away": (["run s", "list"], False),
    "a list does not bring back a sandbox that has stopped": (["run s", "stop s", "list s"], False),
    "nor one that has stopped before anybody told of it": (["stop s", "list s"], False),
    "however often it is listed": (["run s", "stop s", "list s", "list s", "list s"], False),
    "a name that was forgotten may come again": (["run s", "stop s", "remove s", "list s"], True),
    "a name that a list forgot may come again": (["run s", "stop s", "list", "list s"], True),
    "removing what is not there changes nothing": (["run s", "remove t"], True),
    "stopping what is not there changes nothing": (["run s", "stop t"], True),
}


def happen(pods, event):
    what, _, sandbox = event.partition(" ")
    if what == "list":
        pods.replace(dict.fromkeys(sandbox.split(), "pod"))
    elif what == "run":
        pods.run(sandbox, "pod")
    else:
        {"stop": pods.stop, "remove": pods.remove}[what](sandbox)


@pytest.mark.parametrize(("events", "there"), LIFE.values(), ids=LIFE)
def test_life_of_a_pod(events, there):
    pods = Pods()
    pods.run("other", "other-pod")
    for event in events:
        happen(pods, event)
    assert ("pod" in pods) is there
    assert ("other-pod" in pods) is not any(each.startswith("list") for each in events)


def test_sandboxes_that_are_gone_take_no_memory():
    pods = Pods()
    for number in range(100):
        for event in ("run", "stop", "remove"):
            happen(pods, f"{event} s{number}")
        pods.stop(f"unheard of {number}")
    pods.replace({})
    assert not pods._stopped
    assert not pods._uids
