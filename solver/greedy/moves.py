"""Ways in which a NUMA node may take part in an even split."""

from typing import NamedTuple


class Move(NamedTuple):
    """One way to be a member: gives so many groups, may follow phase ``before``, leads to phase ``after``."""

    groups: int
    before: int
    after: int
    gain: int
