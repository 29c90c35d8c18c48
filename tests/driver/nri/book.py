"""A ledger in memory, for tests of what reads snapshots."""

from dataclasses import replace
from types import MappingProxyType

from driver.ledger.entry import Entry, Owner, Snapshot
from driver.ledger.foreign import Foreign
from driver.node import NodeCPUs


class Book:
    """``snapshot`` is replaced at every change, as the real ledger's is."""

    def __init__(self, cpus=range(16), reserved=(0,)):
        self.node = NodeCPUs(frozenset(cpus), frozenset(reserved))
        self.snapshot = Snapshot(self.node, MappingProxyType({}))

    def resize(self, cpus):
        """The node has these CPUs."""
        self.snapshot = replace(self.snapshot, node=replace(self.snapshot.node, online=frozenset(cpus)))

    def hold(self, uid, cpus, pods=("pod-a",), **more):
        """A claim that holds CPUs."""
        self._put(Entry(uid=uid, cpuset=frozenset(cpus), pods=frozenset(pods), **more))

    def forget(self, uid):
        """The claim is gone."""
        kept = {name: entry for name, entry in self.snapshot.entries.items() if name != uid}
        self._show(kept)

    def own(self, uid, owner: Owner):
        """Remember who carries it."""
        if uid in self.snapshot.entries:
            self._put(self.snapshot.entries[uid].model_copy(update={"owner": owner}))

    def give(self, known=True, **given):
        """The kubelet's CPU manager has given CPUs: by uid of the pod, to its container ``main``."""
        cpus = {f"{pod}/main": frozenset(cpus) for pod, cpus in given.items()}
        foreign = Foreign(cpus, known, static=bool(cpus))
        self.snapshot = replace(self.snapshot, foreign=foreign, version=self.snapshot.version + 1)

    def _put(self, entry):
        entries = {**self.snapshot.entries, entry.uid: entry}
        self._show(entries)

    def _show(self, entries):
        self.snapshot = replace(
            self.snapshot, entries=MappingProxyType(entries), version=self.snapshot.version + 1
        )
