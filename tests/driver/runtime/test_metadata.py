"""A container of a real runtime reads what devices it has been given (KEP-5304)."""

import json

import pytest

from models import format_cpuset
from tests.driver.runtime.node import Node


def test_a_container_reads_its_cpus_in_a_file_that_it_cannot_change(node: Node) -> None:
    ref = node.claim()
    cpus = node.prepare(ref)
    node.told[ref.uid] *= 2  # As the kubelet does for a request with two devices.
    own, other = node.run(ref), node.run(name="other")
    base = "/var/run/kubernetes.io/dra-device-attributes"
    path = f"{base}/resourceclaims/{ref.name}/r/dra.cpu-metadata.json"
    newest, _ = json.JSONDecoder().raw_decode(node.cri.execute(own.id, "cat", path))
    assert (newest["kind"], newest["metadata"]["uid"]) == ("DeviceMetadata", ref.uid)
    (device,) = newest["requests"][0]["devices"]
    assert device["attributes"]["dra.cpu/cpuset"] == {"string": format_cpuset(cpus)}
    with pytest.raises(RuntimeError, match="Read-only file system"):
        node.cri.execute(own.id, "sh", "-c", f"echo > {path}")
    with pytest.raises(RuntimeError, match="No such file"):
        node.cri.execute(other.id, "cat", path)


def test_a_container_that_starts_again_while_the_driver_is_away_reads_it_too(node: Node) -> None:
    ref = node.claim()
    node.prepare(ref)
    own = node.run(ref)
    node.end_driver()
    node.remove(own, pod=False)
    again = node.run(ref, pod=own.pod, attempt=1)
    path = f"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/{ref.name}/r/dra.cpu-metadata.json"
    assert ref.uid in node.cri.execute(again.id, "cat", path)
    node.start_driver()
    node.remove(again)
    node.unprepare(ref)
    assert not list(node.containerd.cdi_dir.iterdir())
