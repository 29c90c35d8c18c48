"""Random steps on a real containerd: after each, the kernel's mask of every container equals the ledger.

``CPUSAT_SEED`` chooses others. A seed gives the same steps again.
"""

import os

from tests.driver.runtime.faulty import Faults
from tests.driver.runtime.node import Node
from tests.driver.runtime.walk import STEPS, Walk

SEED, MANY = int(os.environ.get("CPUSAT_SEED", "20261130")), 100


def test_after_each_of_a_hundred_random_steps_every_mask_is_as_the_ledger_says(node: Node, faults: Faults) -> None:
    walk = Walk(node, faults, SEED)
    for number in range(1, MANY + 1):
        walk.step(number)
    node.steps += [f"  {count:3} x {name}" for name, count in walk.taken.most_common()]
    assert len(walk.taken) > len(STEPS) * 0.8
