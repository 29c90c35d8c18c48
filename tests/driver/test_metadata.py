"""What containers can read of their devices (KEP-5304)."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from driver.cdi import CDI
from driver.ledger.entry import Entry, Grant, Shown
from driver.metadata import cdi_ids
from models import parse_cpuset
from tests.driver.bench import Bench
from tests.driver.test_recover import go_file

UID = "6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11"
SHOWN = Shown(
    cpus=parse_cpuset("0-7"), attributes={"dra.cpu/smtEnabled": True, "dra.cpu/numCPUs": 8, "n": ("a", "b")}
)
ENTRY = Entry(
    uid=UID,
    namespace="default",
    name="web.v1",
    cpuset="2-5,9",
    grants=(
        Grant(request="fast/best", pool="node-1", device="cpudevnuma000", cpus=4),
        Grant(request="more", pool="node-1", device="cpudevnuma001", cpus=1),
    ),
    shown={"cpudevnuma000": SHOWN, "cpudevnuma001": Shown(cpus=parse_cpuset("8-15"))},
)


@pytest.fixture
def cdi(tmp_path: Path) -> CDI:
    found = CDI(tmp_path / "cdi", metadata=tmp_path / "plugin/metadata")
    found.open()
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def mounts(cdi: CDI, uid: str = UID) -> dict[str, tuple[str, Path]]:
    """By CDI device that mounts metadata: where in the container, and which file of the host."""
    found = {}
    for file in cdi.folder.glob(f"dra.cpu_metadata_{uid}_*.json"):
        spec = json.loads(file.read_text())
        (device,) = spec["devices"]
        (mount,) = device["containerEdits"].pop("mounts")
        assert (spec["cdiVersion"], device["containerEdits"], mount["options"]) == ("0.5.0", {}, ["ro", "bind"])
        found[f"{spec['kind']}={device['name']}"] = mount["containerPath"], Path(mount["hostPath"])
    return found


def documents(file: Path) -> list[Any]:
    """A file's JSON documents, as Go's decoder reads them: one after the other."""
    decoder, text, found = json.JSONDecoder(), file.read_text(), []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def test_each_request_has_a_file_that_its_containers_find_where_kubernetes_says(cdi: CDI) -> None:
    cdi.write(ENTRY)
    base = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/web.v1"
    found = mounts(cdi)
    assert {device: target for device, (target, _) in found.items()} == {
        f"dra.cpu/metadata={UID}_fast": f"{base}/fast/dra.cpu-metadata.json",
        f"dra.cpu/metadata={UID}_more": f"{base}/more/dra.cpu-metadata.json",
    }
    assert [cdi_ids(ENTRY, grant) for grant in ENTRY.grants] == [[device] for device in sorted(found)]
    newest, oldest = documents(found[f"dra.cpu/metadata={UID}_fast"][1])
    assert newest == {
        "kind": "DeviceMetadata",
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "metadata": {"name": "web.v1", "namespace": "default", "uid": UID, "generation": 1},
        "requests": [
            {
                "name": "fast/best",
                "devices": [
                    {
                        "driver": "dra.cpu",
                        "pool": "node-1",
                        "name": "cpudevnuma000",
                        "attributes": {
                            "dra.cpu/allocatedNumCPUs": {"int": 4},
                            "dra.cpu/cpuset": {"string": "2-5"},
                            "dra.cpu/numCPUs": {"int": 8},
                            "dra.cpu/smtEnabled": {"bool": True},
                            "n": {"strings": ["a", "b"]},
                        },
                    }
                ],
            }
        ],
    }
    assert oldest == {**newest, "apiVersion": "metadata.resource.k8s.io/v1alpha1"}
    (other,) = documents(found[f"dra.cpu/metadata={UID}_more"][1])[0]["requests"][0]["devices"]
    assert other["attributes"] == {"dra.cpu/allocatedNumCPUs": {"int": 1}, "dra.cpu/cpuset": {"string": "9"}}


def test_a_claim_from_a_template_is_found_by_the_name_that_the_pods_spec_has_for_it(cdi: CDI) -> None:
    cdi.write(ENTRY.model_copy(update={"pod_claim": "cpus"}))
    target, file = mounts(cdi)[f"dra.cpu/metadata={UID}_more"]
    base = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates"
    assert target == f"{base}/cpus/more/dra.cpu-metadata.json"
    assert documents(file)[0]["podClaimName"] == "cpus"


def test_several_devices_of_a_request_are_in_one_file(cdi: CDI) -> None:
    both = tuple(grant.model_copy(update={"request": "r"}) for grant in ENTRY.grants)
    cdi.write(ENTRY.model_copy(update={"grants": both}))
    ((_, file),) = mounts(cdi).values()
    assert [each["name"] for each in documents(file)[0]["requests"][0]["devices"]] == [
        "cpudevnuma000",
        "cpudevnuma001",
    ]


def test_a_list_of_cpus_that_is_too_long_for_an_attributes_text_is_cut_at_commas(cdi: CDI) -> None:
    cpus = frozenset(range(0, 256, 2))
    one = ENTRY.grants[1].model_copy(update={"cpus": len(cpus)})
    shown = {one.device: Shown(cpus=frozenset(range(256)))}
    cdi.write(ENTRY.model_copy(update={"cpuset": cpus, "grants": (one,), "shown": shown}))
    ((_, file),) = mounts(cdi).values()
    parts = documents(file)[0]["requests"][0]["devices"][0]["attributes"]["dra.cpu/cpuset"]["strings"]
    assert max(map(len, parts)) <= 64
    assert parse_cpuset(",".join(parts)) == cpus
    assert all(parse_cpuset(part) for part in parts)


def test_a_device_that_nothing_is_known_of_has_the_number_of_its_cpus(cdi: CDI) -> None:
    cdi.write(ENTRY.model_copy(update={"shown": {"cpudevnuma000": SHOWN}}))
    _, file = mounts(cdi)[f"dra.cpu/metadata={UID}_more"]
    (device,) = documents(file)[0]["requests"][0]["devices"]
    assert device["attributes"] == {"dra.cpu/allocatedNumCPUs": {"int": 1}}


@pytest.mark.parametrize("change", [{"shown": {}}, {"name": "", "namespace": ""}, {"grants": ()}])
def test_a_claim_without_names_or_grants_or_that_is_not_to_be_shown_has_no_metadata(cdi: CDI, change: Any) -> None:
    entry = ENTRY.model_copy(update=change)
    cdi.write(entry)
    assert mounts(cdi) == {}
    assert [each for grant in entry.grants for each in cdi_ids(entry, grant)] == []
    assert cdi.stands(entry)


def test_any_user_of_a_container_may_read_it_whatever_the_driver_is_set_to_give(cdi: CDI) -> None:
    former = os.umask(0o077)
    try:
        cdi.write(ENTRY)
    finally:
        os.umask(former)
    assert [stat.S_IMODE(file.stat().st_mode) for _, file in mounts(cdi).values()] == [0o644, 0o644]


def test_what_a_container_mounts_is_there_before_anything_names_it(
    cdi: CDI, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    rename = Path.replace

    def look(old: Path, new: Path) -> None:
        rename(old, new)
        specs, files = (len(list(folder.glob("[!.]*.json"))) for folder in (cdi.folder, cdi._metadata.folder))
        seen.append((specs, files))

    monkeypatch.setattr(Path, "replace", look)
    cdi.write(ENTRY)
    assert all(specs <= files for specs, files in seen[:-1])
    assert (cdi.folder / f"dra.k8s.io-cpu_claim-{UID}.json").exists()
    assert seen[-1] == (3, 2)


@pytest.mark.parametrize("content", [None, "{}", ""])
def test_files_that_are_spoilt_are_seen_and_put_right(cdi: CDI, content: str | None) -> None:
    cdi.write(ENTRY)
    files = [*cdi.folder.glob("*metadata*.json"), *cdi._metadata.folder.iterdir()]
    assert len(files) == 4
    for file in files:
        right = file.read_bytes()
        file.unlink() if content is None else file.write_text(content)
        assert not cdi.stands(ENTRY)
        cdi.write(ENTRY)
        assert cdi.stands(ENTRY)
        assert file.read_bytes() == right


def test_files_that_are_right_are_not_touched(cdi: CDI) -> None:
    """A container sees the file that was there when it was created."""
    cdi.write(ENTRY)
    before = {path: path.stat() for path in cdi._metadata.folder.iterdir()}
    cdi.write(ENTRY)
    assert {path: path.stat() for path in cdi._metadata.folder.iterdir()} == before


def test_a_released_claim_leaves_nothing_and_others_keep_theirs(cdi: CDI) -> None:
    other = ENTRY.model_copy(update={"uid": f"{UID[:-1]}", "cpuset": parse_cpuset("20")})
    cdi.write(ENTRY)
    cdi.write(other)
    cdi.remove(UID)
    cdi.remove(UID)
    assert mounts(cdi) == {}
    assert cdi.stands(other)
    cdi.remove(other.uid)
    assert names(cdi.folder) == names(cdi._metadata.folder) == []


def test_what_dra_driver_cpu_has_left_of_a_claim_goes_with_it(cdi: CDI) -> None:
    spec = cdi.folder / f"dra.cpu_metadata_{UID}_r0.json"
    spec.write_text("{}")
    (cdi.folder / "dra.cpu_metadata_other_r0.json").write_text("{}")
    cdi.remove(UID)
    assert names(cdi.folder) == ["dra.cpu_metadata_other_r0.json"]


# With the ledger


def test_prepare_writes_metadata_and_unprepare_removes_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, shows=True)
    ref = bench.claim("a", 4)
    cpus = bench.prepare(ref)
    ((_, file),) = mounts(bench.cdi, "a").values()
    (device,) = documents(file)[0]["requests"][0]["devices"]
    assert parse_cpuset(device["attributes"]["dra.cpu/cpuset"]["string"]) == cpus
    assert device["attributes"]["dra.cpu/numCPUs"] == {"int": 31 + 1}
    assert device["attributes"]["dra.cpu/allocatedNumCPUs"] == {"int": 4}
    bench.preparer.unprepare(ref)
    assert bench.on_disk() == []


def test_a_claim_is_refused_and_leaves_nothing_when_its_metadata_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("no folder")
    bench = Bench(tmp_path, shows=True)
    assert bench.refusal(bench.claim("a", 4))[0] == "Disk"
    assert bench.held == {}
    assert bench.on_disk() == ["metadata"]


def test_metadata_is_as_it_was_after_a_restart_under_another_configuration(tmp_path: Path) -> None:
    bench = Bench(tmp_path, shows=True)
    bench.prepare(bench.claim("a", 4))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*metadata*/*") if path.is_file()}
    for path in before:
        path.unlink()
    again = Bench(tmp_path, shows=False, reservedCPUs="0-1", groupBy="socket")
    assert {path: path.read_bytes() for path in before} == before
    again = Bench(tmp_path, shows=True, reservedCPUs="30-31")
    again.prepare(again.claim("a", 4))
    assert {path: path.read_bytes() for path in before} == before
    entry = again.ledger.snapshot.entries["a"]
    assert cdi_ids(entry, entry.grants[0]) == ["dra.cpu/metadata=a_r0"]


def test_a_claim_of_an_older_version_gets_its_metadata_when_the_kubelet_asks_for_it_again(tmp_path: Path) -> None:
    older = Bench(tmp_path)
    ref = older.claim("a", 4)
    older.prepare(ref)
    newer = Bench(tmp_path, shows=True)
    newer.shelf.documents.update(older.shelf.documents)
    assert mounts(newer.cdi, "a") == {}
    annotations = {"resource.kubernetes.io/pod-claim-name": "cpus"}
    newer.shelf.documents[ref.namespace, ref.name]["metadata"]["annotations"] = annotations
    newer.prepare(ref)
    ((target, _),) = mounts(newer.cdi, "a").values()
    assert "/resourceclaimtemplates/cpus/" in target


def test_a_claim_from_a_template_is_known_as_such_from_its_annotation(tmp_path: Path) -> None:
    bench = Bench(tmp_path, shows=True)
    ref = bench.claim("a", 4)
    annotations = {"resource.kubernetes.io/pod-claim-name": "cpus"}
    bench.shelf.documents[ref.namespace, ref.name]["metadata"]["annotations"] = annotations
    bench.prepare(ref)
    ((target, _),) = mounts(bench.cdi, "a").values()
    assert "/resourceclaimtemplates/cpus/" in target


def test_what_the_kubelet_was_told_stays_when_the_entry_is_torn_and_its_claim_taken_over(tmp_path: Path) -> None:
    """A container that is started again names the CDI devices that the kubelet was told at Prepare."""
    bench = Bench(tmp_path, shows=True)
    cpus = bench.prepare(bench.claim("a", 4))
    (tmp_path / "ledger/a.json").write_text('{"uid": "a", "cpuset": "')
    before = mounts(bench.cdi, "a")
    bench.restart()
    assert bench.held == {"a": cpus}
    assert mounts(bench.cdi, "a") == before
    assert all(file.exists() for _, file in before.values())


def test_a_start_removes_the_metadata_of_claims_that_others_have_released(tmp_path: Path) -> None:
    bench = Bench(tmp_path, shows=True)
    for uid in ("gone", "here"):
        bench.prepare(bench.claim(uid, 4))
    go_file(tmp_path / "cdi", "theirs", "30-31")
    go_file(tmp_path / "cdi", "clash", "30")  # Cannot be taken over, and may run all the same.
    for uid in ("theirs", "clash"):
        (tmp_path / f"cdi/dra.cpu_metadata_{uid}_r0.json").write_text("{}")
    (tmp_path / "metadata/default_web.json/r0").mkdir(parents=True)
    for file in ("ledger/gone.json", "cdi/dra.k8s.io-cpu_claim-gone.json"):
        (tmp_path / file).unlink()
    (tmp_path / "cdi/.dra.cpu_metadata_gone_r0.json.new").write_text("")
    (tmp_path / "metadata/.gone_r0.json.new").write_text("")
    bench.restart()
    assert names(tmp_path / "metadata") == ["default_web.json", "here_r0.json"]
    assert bench.ledger.withheld() == ["clash"]
    assert names(tmp_path / "cdi") == [
        "dra.cpu_metadata_clash_r0.json",
        "dra.cpu_metadata_here_r0.json",
        "dra.cpu_metadata_theirs_r0.json",
        "dra.k8s.io-cpu_claim-clash.json",
        "dra.k8s.io-cpu_claim-here.json",
        "dra.k8s.io-cpu_claim-theirs.json",
    ]
