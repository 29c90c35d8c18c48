"""CPUs that the kubelet's own CPU manager has given to containers, beside our claims."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

ANY = "*"
"""Stands for a container's name where CPUs are those of a pod. No container is called so."""


@dataclass(frozen=True)
class Foreign:
    """What is known of the kubelet's CPU manager.

    ``cpus``: what it has given, by container: ``namespace/pod/container`` or ``pod uid/container``, with ``ANY``
    for a container of the pod that is not listed. ``known``: whether the kubelet could be asked; until it can be,
    ``cpus`` is what it said last. ``static``: its policy gives CPUs away, now or later.
    """

    cpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    known: bool = True
    static: bool = False

    @property
    def bars(self) -> bool:
        """Whether no CPUs may be promised: the kubelet may give them away, or may have done so."""
        return not self.known or self.static or bool(self.cpus)

    @cached_property
    def given(self) -> frozenset[int]:
        """CPUs of all these containers."""
        return frozenset[int]().union(*self.cpus.values())

    def of(self, pod: str, uid: str, container: str) -> frozenset[int]:
        """CPUs of a container, none if the kubelet has given it none. ``pod``: ``namespace/name``."""
        keys = (f"{each}/{name}" for name in (container, ANY) for each in (pod, uid))
        return next((self.cpus[key] for key in keys if key in self.cpus), frozenset())
