"""What is deployed: valid for the API server, accepted by the driver, and allowed no more than it needs."""

import threading
import time
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from driver.claims.configs import API_VERSION, CPUSET_VERSION, KIND
from driver.cli.run import command
from driver.cluster.api import Api
from driver.cluster.status import refused
from driver.config import Config, read_config
from driver.devices.devices import devices_of
from driver.devices.slices import NodeRef, slices
from driver.host import POD_UID
from driver.kubelet.folders import Folders
from driver.kubelet.probe import DEADLINE
from driver.kubelet.serve import PERIOD, TRIES
from driver.names import CAPACITY, DRIVER
from driver.node_name import NODE_NAME
from driver.options import Options
from models import InfeasibleError
from solver.engine import solve
from tests.driver.claims.documents import REF, Node, claim, config, result
from tests.driver.cluster.api_server import ApiServer
from tests.driver.manifests import (
    BASE,
    COMPONENTS,
    DEPLOY,
    EXAMPLES,
    FILES,
    Document,
    documents,
    of_kind,
    only,
)
from tests.driver.world import World
from topologies import synthetic

ADOPT = COMPONENTS / "adopt"
VERSIONS = ("1.34", "1.35", "1.36", "1.37")
CONFIGS = sorted(DEPLOY.rglob("config.yaml"))
EXAMPLE_FILES = sorted(EXAMPLES.glob("*.yaml"))

KUBELETS_NEXT_TRY = 68
"""Seconds after which a kubelet asks again for a claim that it got no answer for, at the earliest."""

FOUR_NODES = synthetic.build("socket:2 numa:2 l3:1 core:4 cpu:2")
"""32 CPUs on 4 NUMA nodes."""


@pytest.fixture
def pod() -> Document:
    return dict(only("DaemonSet")["spec"]["template"]["spec"])


@pytest.fixture
def container(pod: Document) -> Document:
    (found,) = pod["containers"]
    return dict(found)


@pytest.fixture
def settings() -> Config:
    return read_config(BASE / "config.yaml")


# The API server


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_object_is_valid_under_the_strict_schemas(file: Path, version: str) -> None:
    for document in documents(file):
        kubernetes_validate.validate(document, version, strict=True)


# The driver


@pytest.mark.parametrize("file", CONFIGS, ids=lambda path: path.parent.name)
def test_the_driver_reads_every_configuration(file: Path) -> None:
    found = read_config(file)
    assert found.cpu_device_mode == "grouped"
    assert found.group_by == {"base": "numanode", "machine": "machine"}[file.parent.name]


def test_the_driver_accepts_its_arguments_and_the_configuration_lies_where_they_say(container: Document) -> None:
    context = command.make_context("cpusat-driver", list(container["args"]))
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "config"]
    assert context.params["config"] == Path(mount["mountPath"]) / "config.yaml"
    assert context.params["bind_address"] == ":8080"


def test_every_folder_that_the_driver_uses_is_mounted_from_the_same_place_of_the_host(
    pod: Document, container: Document, settings: Config
) -> None:
    mounts = {Path(each["mountPath"]): each for each in container["volumeMounts"]}
    paths = {each["name"]: Path(each["hostPath"]["path"]) for each in pod["volumes"] if "hostPath" in each}
    kubelet = Folders(settings.kubelet_root_dir)
    for folder in (kubelet.plugin, kubelet.registry, settings.cdi_dir, settings.nri_socket.parent):
        assert paths.pop(mounts[folder]["name"]) == folder
        assert not mounts[folder].get("readOnly")
    for folder in (settings.cgroup_root, Path("/sys"), kubelet.pod_resources.parent, kubelet.cpu_manager_state):
        assert paths.pop(mounts[folder]["name"]) == folder
        assert mounts[folder]["readOnly"]
    assert paths == {}


def test_of_the_kubelets_own_folder_no_more_is_mounted_than_the_driver_reads(pod: Document) -> None:
    """The folder has the secrets of all pods. A file that is not there must not become a folder."""
    types = {each["hostPath"]["path"]: each["hostPath"]["type"] for each in pod["volumes"] if "hostPath" in each}
    kubelet = {path: kind for path, kind in types.items() if path.startswith("/var/lib/kubelet")}
    assert kubelet == {
        "/var/lib/kubelet/plugins/dra.cpu": "DirectoryOrCreate",
        "/var/lib/kubelet/plugins_registry": "Directory",
        "/var/lib/kubelet/pod-resources": "Directory",
        "/var/lib/kubelet/cpu_manager_state": "File",
    }


def test_nodes_are_selected_by_a_label_that_every_page_names_which_has_it_set(pod: Document) -> None:
    (label,) = [f"{key}={value}" for key, value in pod["nodeSelector"].items() if key != "kubernetes.io/os"]
    assert label == "dra.cpu/driver=cpusat"
    for page in ("quickstart.md", "migration.md"):
        assert f"kubectl label node NODE {label}" in (DEPLOY.parent / "docs/driver" / page).read_text()


def test_the_driver_learns_its_node_and_pod_by_the_variables_it_reads(container: Document) -> None:
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    assert fields == {NODE_NAME: "spec.nodeName", POD_UID: "metadata.uid"}


def test_probes_ask_where_the_driver_answers(container: Document) -> None:
    (port,) = container["ports"]
    assert port == {"name": "http", "containerPort": 8080}
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def patience(probe: Document) -> int:
    """Seconds of failures after which something is done."""
    return int(probe["periodSeconds"] * probe["failureThreshold"])


def test_a_slow_start_is_waited_for_and_a_deaf_driver_is_restarted_before_the_kubelets_next_try(
    container: Document,
) -> None:
    mended = (TRIES + 1) * (PERIOD + DEADLINE)
    assert patience(container["startupProbe"]) >= 120
    assert mended + patience(container["livenessProbe"]) <= KUBELETS_NEXT_TRY


def opaque(config_entries: Any) -> Iterator[Document]:
    for each in config_entries or ():
        assert each["opaque"]["driver"] == DRIVER
        yield each


def test_opaque_configs_of_classes_and_claims_are_options_of_the_driver() -> None:
    specs = [each["spec"] for each in of_kind("DeviceClass")]
    specs += [spec["devices"] for file in EXAMPLE_FILES for spec in claims_of(file).values()]
    found = [each["opaque"]["parameters"] for spec in specs for each in opaque(spec.get("config"))]
    ours = [each for each in found if each["apiVersion"] != CPUSET_VERSION]
    assert len(ours) >= 6
    for parameters in ours:
        own = dict(parameters)
        assert (own.pop("apiVersion"), own.pop("kind")) == (API_VERSION, KIND)
        assert Options.model_validate(own).model_dump(exclude_none=True)


def test_there_are_classes_for_each_policy() -> None:
    names = {each["metadata"]["name"] for each in of_kind("DeviceClass")}
    assert names == {"dra.cpu", "dra.cpu-distributed", "dra.cpu-full-cores"}


def allocated(spec: Document) -> Document:
    """The claim as the scheduler would allocate it on a node whose only device is the machine."""
    classes = {each["metadata"]["name"]: each["spec"] for each in of_kind("DeviceClass")}
    results, configs = [], []
    for request in spec["devices"]["requests"]:
        exactly = request["exactly"]
        results.append(result(request["name"], "cpudevmachine", exactly["capacity"]["requests"][CAPACITY]))
        for each in opaque(classes[exactly["deviceClassName"]].get("config")):
            configs.append(config(each["opaque"]["parameters"], "FromClass", [request["name"]]))
    for each in opaque(spec["devices"].get("config")):
        configs.append(config(each["opaque"]["parameters"], "FromClaim", each.get("requests")))
    return claim(*results, configs=configs)


def placed(spec: Document) -> dict[str, frozenset[int]]:
    """By request, the CPUs that its claim gets on an empty machine."""
    node = Node(FOUR_NODES, groupBy="machine", reservedCPUs="0")
    wish = node.wish(allocated(spec))
    free = node.node.allocatable - wish.set_aside
    found = solve(node.topology, wish.requests, free=free).require() if wish.requests else ()
    return {each.request: each.cpuset for each in found} | wish.given


def claims_of(file: Path) -> dict[str, Document]:
    """The claims that a file has, by the name of the object that makes them."""
    specs = {
        "ResourceClaim": lambda each: each["spec"],
        "ResourceClaimTemplate": lambda each: each["spec"]["spec"],
    }
    found = [each for each in documents(file) if each["kind"] in specs]
    return {each["metadata"]["name"]: specs[each["kind"]](each) for each in found}


def pods_of(file: Path) -> list[Document]:
    pods = [each["spec"] for each in documents(file) if each["kind"] == "Pod"]
    return pods + [each["spec"]["template"]["spec"] for each in documents(file) if each["kind"] == "Deployment"]


@pytest.mark.parametrize("file", EXAMPLE_FILES, ids=lambda path: path.stem)
def test_every_example_is_placed_and_its_pod_asks_for_as_many_cpus_as_its_claims(file: Path) -> None:
    sizes = {name: sum(map(len, placed(spec).values())) for name, spec in claims_of(file).items()}
    (pod,) = pods_of(file)
    used = [each["name"] for one in pod["containers"] for each in one.get("resources", {}).get("claims", ())]
    assert sorted(used) == sorted(each["name"] for each in pod["resourceClaims"])
    made = [each.get("resourceClaimTemplateName") or each["resourceClaimName"] for each in pod["resourceClaims"]]
    asked = pod.get("resources") or pod["containers"][0]["resources"]
    assert int(asked["requests"]["cpu"]) >= sum(sizes[name] for name in made) > 0
    if "resources" not in pod:
        assert int(asked["requests"]["cpu"]) == sum(sizes[name] for name in made)


@pytest.mark.parametrize(
    ("example", "shares"), [("packed", [4]), ("distributed", [4, 4, 4, 4]), ("strict", [4, 4]), ("l3", [4])]
)
def test_examples_of_policies_give_what_they_say(example: str, shares: list[int]) -> None:
    (spec,) = claims_of(EXAMPLES / f"{example}.yaml").values()
    (found,) = placed(spec).values()
    numa = {cpu.cpu: cpu.numa for cpu in FOUR_NODES.cpus}
    assert sorted(Counter(numa[cpu] for cpu in found).values()) == shares


def test_whole_cores_leave_nobody_a_sibling() -> None:
    (spec,) = claims_of(EXAMPLES / "full-cores.yaml").values()
    (found,) = placed(spec).values()
    core = {cpu.cpu: cpu.core for cpu in FOUR_NODES.cpus}
    assert set(Counter(core[cpu] for cpu in found).values()) == {2}


def test_strict_examples_are_refused_where_they_cannot_be_met() -> None:
    single = Node(synthetic.build("numa:1 l3:4 core:2 cpu:1"), groupBy="machine")
    for example, asked in (("strict", "NUMA nodes"), ("l3", "L3")):
        (spec,) = claims_of(EXAMPLES / f"{example}.yaml").values()
        wish = single.wish(allocated(spec))
        with pytest.raises(InfeasibleError, match=asked):
            solve(single.topology, wish.requests, free=single.node.allocatable).require()


def test_the_annotation_that_fails_closed_names_our_plugin() -> None:
    (pod,) = [each for each in documents(EXAMPLES / "fail-closed.yaml") if each["kind"] == "Pod"]
    annotation = pod["metadata"]["annotations"]["required-plugins.noderesource.dev"]
    assert yaml.safe_load(annotation) == [DRIVER]


# No more than it needs


def test_the_pod_has_no_power_beyond_owning_its_sockets_and_folders(pod: Document, container: Document) -> None:
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seLinuxOptions": {"type": "spc_t"},
    }
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()


def test_the_pod_asks_for_little_and_its_cpu_is_not_limited(pod: Document, container: Document) -> None:
    requests, limits = container["resources"]["requests"], container["resources"]["limits"]
    assert (requests.keys(), limits.keys()) == ({"cpu", "memory"}, {"memory"})
    assert (requests["cpu"], int(requests["memory"].removesuffix("Mi")) <= 200) == ("100m", True)
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_a_rolling_update_starts_the_new_pod_before_it_ends_the_old_one() -> None:
    strategy = only("DaemonSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_the_new_pod_is_ready_while_it_waits_for_the_old_one_to_end(short_path: Path) -> None:
    with World(short_path, FOUR_NODES, solverTimeLimit=0).running() as world:
        second = world.make_driver()
        starting = threading.Thread(target=second.start)
        starting.start()
        try:
            end = time.monotonic() + 60
            while not second._waits and time.monotonic() < end:
                time.sleep(0.02)
            port = second._running[0].port  # type: ignore[attr-defined]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20) as reply:
                assert reply.read() == b"ok\n"
            assert starting.is_alive()
        finally:
            second.stopped.set()
            starting.join(60)
            second.stop()


def granted(folder: Path) -> dict[str, set[str]]:
    """By resource, the verbs of the one ClusterRole of a folder."""
    (role,) = [each for each in documents(folder / "rbac.yaml") if each["kind"] == "ClusterRole"]
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        assert rule.keys() - {"resourceNames"} == {"apiGroups", "resources", "verbs"}
        for resource in rule["resources"]:
            name = "/".join([*filter(None, rule["apiGroups"]), resource])
            found.setdefault(name, set()).update(rule["verbs"])
    return found


def test_the_service_account_may_do_what_is_listed_and_nothing_else() -> None:
    assert granted(BASE) == {
        "nodes": {"get"},
        "resource.k8s.io/resourceslices": {"list", "watch", "create", "delete"},
        "resource.k8s.io/resourceclaims": {"get"},
        "resource.k8s.io/resourceclaims/status": {"patch"},
        "resource.k8s.io/resourceclaims/driver": {"associated-node:patch"},
        "events": {"create", "patch"},
    }
    assert granted(ADOPT) == {"resource.k8s.io/resourceclaims": {"list"}}
    roles = [each for each in documents(*FILES) if each["kind"] in ("Role", "ClusterRole")]
    assert len(roles) == 2


def test_every_binding_is_of_a_role_here_to_the_account_of_the_pod() -> None:
    account = only("ServiceAccount")["metadata"]
    roles = {each["metadata"]["name"] for each in of_kind("ClusterRole")}
    for binding in of_kind("ClusterRoleBinding"):
        assert binding["roleRef"]["name"] in roles
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        ]


def test_the_driver_asks_the_api_server_for_exactly_what_it_may(tmp_path: Path) -> None:
    node = Node(FOUR_NODES, groupBy="machine")
    with ApiServer(node="node-1") as server:
        api = Api.connect(str(server.kubeconfig(tmp_path / "kubeconfig")))
        owner = NodeRef("node-1", str(api.node_uid("node-1")))
        (document,) = slices(devices_of(node.config, node.topology, node.node), owner, 1)
        made = api.create_slice(document)
        _, version = api.slices("node-1", dict)
        api.delete_slice(made["metadata"]["name"])
        next(iter(api.watch_slices("node-1", version)))
        api.claims({"u"}, print)
        api.get("default", "cpus")
        server.put_claim(claim(result("r", "cpudevmachine", "1")))
        api.apply_claim_status(REF, refused(REF, [], "Held", "").document("2026-12-01T00:00:00Z"))
        name = api.create_event("default", {"metadata": {"generateName": "a"}})
        api.patch_event("default", name, {"count": 2})
        asked = {verb_of(method, path) for method, path in server.requests}
    roles = granted(BASE), granted(ADOPT)
    allowed = {(name, verb) for role in roles for name, verbs in role.items() for verb in verbs}
    # The server checks this one itself, for what is written of devices.
    synthetic = ("resource.k8s.io/resourceclaims/driver", "associated-node:patch")
    assert asked == allowed - {synthetic}


def verb_of(method: str, path: str) -> tuple[str, str]:
    """Resource and verb of a request, as the API server's authorizer names them."""
    where, _, query = path.partition("?")
    group, _, rest = where.removeprefix("/api/").removeprefix("/apis/").partition("v1/")
    parts = rest.split("/")
    parts = parts[2:] if parts[0] == "namespaces" else parts
    verbs = {"POST": "create", "DELETE": "delete", "PUT": "update", "PATCH": "patch"}
    read = "watch" if "watch=" in query else "get" if len(parts) > 1 else "list"
    return group + "/".join([parts[0], *parts[2:]]), verbs.get(method, read)


def test_the_image_runs_the_command_of_the_package_and_copies_all_of_it() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    assert 'ENTRYPOINT ["/opt/cpusat/bin/cpusat-driver"]' in lines
    assert "FROM ${BASE}" in lines
    packages = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    context = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    for package in {name.partition(".")[0] for name in packages}:
        assert f"COPY {package} {package}" in lines
        assert f"!{package}" in context
