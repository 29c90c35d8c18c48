"""Which pods are there: who owned a claim and is gone for good loses it."""

from collections.abc import Mapping


class Pods:
    """Sandboxes that have not stopped. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._stopped: set[str] = set()

    def run(self, sandbox: str, uid: str) -> None:
        """A pod has a sandbox."""
        self._uids[sandbox] = uid

    def stop(self, sandbox: str) -> None:
        """A sandbox has stopped; it may be listed for long after that."""
        self._stopped.add(sandbox)
        self._uids.pop(sandbox, None)

    def remove(self, sandbox: str) -> None:
        """The runtime has forgotten a sandbox."""
        self._stopped.discard(sandbox)
        self._uids.pop(sandbox, None)

    def replace(self, listed: Mapping[str, str]) -> None:
        """The runtime's whole list: uids by sandbox."""
        self._stopped &= listed.keys()
        self._uids = {sandbox: uid for sandbox, uid in listed.items() if sandbox not in self._stopped}

    def __contains__(self, uid: str) -> bool:
        """Whether a pod has a sandbox."""
        return uid in self._uids.values()
