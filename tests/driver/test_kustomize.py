"""What kustomize builds of the base, its overlays and components, alone and under a cluster's own settings."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from driver.cli.run import command
from driver.kubelet.folders import Folders
from tests.driver.manifests import (
    BASE,
    COMPONENTS,
    DEPLOY,
    KUSTOMIZED,
    Document,
    built,
    documents,
    kustomized,
    only,
)

NEWEST = "1.37"

QUICKSTART = DEPLOY.parent / "docs/driver/quickstart.md"

OURS = {"namespace": "cpus", "namePrefix": "our-", "nameSuffix": "-1"}
"""What a cluster may want of all its objects."""

DEFAULT_ROOT, OTHER_ROOT = "/var/lib/kubelet", "/var/snap/plugins/common/var/lib/kubelet"


@pytest.mark.parametrize("folder", [*KUSTOMIZED, *sorted(COMPONENTS.iterdir())], ids=lambda path: path.name)
def test_a_kustomization_names_every_file_of_its_folder(folder: Path) -> None:
    (kustomization,) = documents(folder / "kustomization.yaml")
    generated = [name for each in kustomization.get("configMapGenerator", ()) for name in each["files"]]
    named = [*kustomization["resources"], *kustomization.get("configurations", ())]
    own = {name for name in named if name != "../../base"}
    assert {*own, *generated, "kustomization.yaml"} == {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("folder", KUSTOMIZED, ids=lambda path: path.name)
def test_what_is_built_is_valid_and_mounts_its_configuration(folder: Path, tmp_path: Path) -> None:
    objects = built(folder, tmp_path)
    for each in objects:
        kubernetes_validate.validate(each, NEWEST, strict=True)
    config_map = only("ConfigMap", objects)
    volumes = only("DaemonSet", objects)["spec"]["template"]["spec"]["volumes"]
    mounted = [each["configMap"]["name"] for each in volumes if "configMap" in each]
    assert mounted == [config_map["metadata"]["name"]]
    own = folder / "config.yaml"
    assert config_map["data"]["config.yaml"] == (own if own.exists() else BASE / "config.yaml").read_text()


@pytest.mark.parametrize("folder", KUSTOMIZED, ids=lambda path: path.name)
def test_adopting_can_be_added_to_each_of_them(folder: Path, tmp_path: Path) -> None:
    resources = [f"../deploy/{folder.relative_to(DEPLOY)}"]
    alone = kustomized(tmp_path, {"resources": resources})
    objects = kustomized(tmp_path, {"resources": resources, "components": ["../deploy/components/adopt"]})
    added = [each["metadata"]["name"] for each in objects if "adopt" in each["metadata"]["name"]]
    assert (len(objects), added) == (len(alone) + 2, ["cpusat-driver-adopt"] * 2)


def ours(home: Path, **more: Any) -> list[Document]:
    components = ["../deploy/components/adopt", "../deploy/components/kubelet-root"]
    return kustomized(home, {"resources": ["../deploy/base"], "components": components, **OURS, **more})


def test_names_that_a_cluster_changes_still_belong_together(tmp_path: Path) -> None:
    objects = ours(tmp_path)
    account, daemon_set = only("ServiceAccount", objects)["metadata"], only("DaemonSet", objects)
    assert (account["namespace"], account["name"]) == ("cpus", "our-cpusat-driver-1")
    assert daemon_set["metadata"]["namespace"] == "cpus"
    assert daemon_set["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": "cpus"}
    bindings = [each for each in objects if each["kind"] == "ClusterRoleBinding"]
    assert [each["subjects"] for each in bindings] == [[subject]] * 2
    roles = {each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"}
    assert {each["roleRef"]["name"] for each in bindings} == roles
    policy = only("ValidatingAdmissionPolicy", objects)["metadata"]["name"]
    assert only("ValidatingAdmissionPolicyBinding", objects)["spec"]["policyName"] == policy
    assert only("NetworkPolicy", objects)["metadata"]["namespace"] == "cpus"


def folders_of(objects: list[Document]) -> dict[str, tuple[str, str]]:
    """By volume, where it is on the host and in the container."""
    pod = only("DaemonSet", objects)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    return {
        each["name"]: (each["hostPath"]["path"], mounts[each["name"]])
        for each in pod["volumes"]
        if "hostPath" in each
    }


def test_another_root_of_the_kubelet_is_one_setting(tmp_path: Path) -> None:
    before = ours(tmp_path)
    setting = tmp_path / "deploy/components/kubelet-root/root.yaml"
    assert setting.read_text().count(DEFAULT_ROOT) == 1
    setting.write_text(setting.read_text().replace(DEFAULT_ROOT, OTHER_ROOT))
    after = ours(tmp_path)
    assert DEFAULT_ROOT in yaml.safe_dump_all(before)
    expected = yaml.safe_load_all(yaml.safe_dump_all(before).replace(DEFAULT_ROOT, OTHER_ROOT))
    assert after == list(expected)
    (container,) = only("DaemonSet", after)["spec"]["template"]["spec"]["containers"]
    root = command.make_context("cpusat-driver", list(container["args"])).params["kubelet_root_dir"]
    own = Folders(Path(root))
    assert folders_of(after)["plugin"] == (str(own.plugin), str(own.plugin))
    assert folders_of(after)["registry"] == (str(own.registry), str(own.registry))


def test_the_root_of_the_kubelet_changes_nothing_unless_it_is_set(tmp_path: Path) -> None:
    resources = {"resources": ["../deploy/overlays/machine"]}
    alone = kustomized(tmp_path, resources)
    objects = kustomized(tmp_path, {**resources, "components": ["../deploy/components/kubelet-root"]})
    (container,) = only("DaemonSet", objects)["spec"]["template"]["spec"]["containers"]
    assert container["args"].pop() == f"--kubelet-root-dir={DEFAULT_ROOT}"
    assert objects == alone


def test_the_kustomization_of_the_quickstart_pins_the_image_by_its_digest(tmp_path: Path) -> None:
    (text,) = [each for each in QUICKSTART.read_text().split("```") if "kind: Kustomization" in each]
    lines = text.splitlines()[1:]
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    kustomization = yaml.safe_load("\n".join(line[indent:] for line in lines))
    objects = kustomized(tmp_path, kustomization)
    (container,) = only("DaemonSet", objects)["spec"]["template"]["spec"]["containers"]
    name, _, digest = container["image"].partition("@")
    (image,) = kustomization["images"]
    assert (name, digest) == (image["newName"], image["digest"])
    assert digest.startswith("sha256:")
