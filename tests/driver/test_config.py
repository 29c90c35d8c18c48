"""Configuration: what is read, what is refused, and with which words."""

from pathlib import Path

import pytest

from driver.config import Config, read_address, read_config
from driver.kubelet.folders import Folders
from driver.options import Options
from models import BadInputError


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config.yaml"


def read(file, text, **flags):
    file.write_text(text)
    return read_config(file, **flags)


def test_without_a_file_and_flags_all_is_as_in_dra_driver_cpu():
    config = read_config(None)
    assert (config.cpu_device_mode, config.group_by, config.bind_address) == ("grouped", "numanode", ":8080")
    assert (config.reserved_cpus, config.kubeconfig, config.hostname_override) == (frozenset(), "", "")
    assert not config.publish_node_allocatable_resource_mapping
    assert not config.expose_pcie_roots
    assert config.solver_time_limit == 2.0
    assert Folders(config.kubelet_root_dir).ledger == Path("/var/lib/kubelet/plugins/dra.cpu/ledger")


def test_a_file_of_dra_driver_cpu_is_read_as_it_is(file):
    config = read(
        file,
        """
        apiVersion: v1alpha1
        cpuDeviceMode: grouped
        groupBy: machine
        reservedCPUs: "0-3"
        hostnameOverride: worker-1.example
        kubeconfig: /etc/kubeconfig
        publishNodeAllocatableResourceMapping: true
        sysfsOverlay: /etc/overlay.yaml
        """,
    )
    assert (config.group_by, config.reserved_cpus) == ("machine", frozenset(range(4)))
    assert (config.hostname_override, config.kubeconfig) == ("worker-1.example", "/etc/kubeconfig")
    assert (config.publish_node_allocatable_resource_mapping, config.sysfs_overlay) == (True, "/etc/overlay.yaml")


def test_placement_options_are_the_defaults_of_claims(file):
    config = read(file, "allocationPolicy: distributed\nfullCores: true\nstrict: [numaMin]\nnumaMin: all")
    assert config.defaults == Options.model_validate(
        {"allocationPolicy": "distributed", "fullCores": True, "strict": ["numaMin"], "numaMin": "all"}
    )
    assert read_config(None).defaults == Options()


@pytest.mark.parametrize("text", ["{}", "# nothing yet\n", "reservedCPUs:\nhostnameOverride:\ncdiDir:\n"])
def test_a_file_may_leave_everything_out(file, text):
    assert read(file, text) == Config()


def test_flags_go_over_the_file_and_those_not_given_do_not(file):
    config = read(file, "groupBy: socket\nbindAddress: :9000", bind_address="[::1]:9001", group_by=None)
    assert (config.group_by, config.bind_address) == ("socket", "[::1]:9001")
    assert read_config(None, reserved_cpus="0,2").reserved_cpus == {0, 2}


WRONG = {
    "groupBy: node": "groupBy: Input should be 'numanode', 'socket' or 'machine'",
    "group_by: socket": "group_by: unknown key; is it groupBy?",
    "reservedCpus: 0-1": "reservedCpus: unknown key; is it reservedCPUs?",
    "exposePcieRoots: true": "exposePcieRoots: unknown key; is it exposePCIeRoots?",
    "numaMin: ALL": "numaMin: expected a number of NUMA nodes from 1 to 4096, or all",
    "numaMin: 3\nnumaMax: 2": "numaMin 3 is above numaMax 2",
    "cdiDir: 5": "cdiDir: '5' is not an absolute path",
    "allocator: external": "allocator: external needs cpuDeviceMode: grouped and groupBy: machine",
    "groupBy: machine\nallocator: cpumanager\nmachineAllocation: external": "cpumanager contradicts machineAll",
    "cpus: 3": "cpus: unknown key",
    "within: 0-3": "within: unknown key",
    "apiVersion: v2": "apiVersion: Input should be 'v1alpha1'",
    "reservedCPUs: 0": 'reservedCPUs: expected a CPU list such as "0-3,8"',
    "reservedCPUs: 0-x": "reservedCPUs: '0-x' is not a CPU number or a range such as 0-3",
    "reservedCPUs: 0-99999999": "reservedCPUs: CPU 99999999 is above the highest number allowed, 65535",
    "solverTimeLimit: 60": "solverTimeLimit: Input should be less than or equal to 20",
    "solverTimeLimit: true": "solverTimeLimit: Input should be a valid number",
    "minSharedCPUs: 0": "minSharedCPUs: 0 leaves containers without a claim nothing",
    "minSharedCPUs: -1": "minSharedCPUs: Input should be greater than or equal to 0",
    "exposePCIeRoots: 1": "exposePCIeRoots: Input should be a valid boolean",
    "bindAddress: '8080'": "bindAddress: '8080' is no address such as :8080, 127.0.0.1:8080 or [::]:8080",
    "kubeletRootDir: var/lib/kubelet": "kubeletRootDir: 'var/lib/kubelet' is not an absolute path",
    'cdiDir: "/run/c\\0di"': r"cdiDir: '/run/c\x00di' is not an absolute path",
    "hostnameOverride: Worker": "hostnameOverride: 'Worker' is no node's name such as node-1.example.com",
    "allocationPolicy: spread": "allocationPolicy: Input should be 'packed' or 'distributed'",
    "threads: spread\nfullCores: true": "threads: spread and fullCores contradict each other; drop one",
    "machineAllocation: external": "machineAllocation: external needs cpuDeviceMode: grouped and groupBy: machine",
    "cpuDeviceMode: individual\nallocationPolicy: packed": "the scheduler chooses the CPUs",
    "- groupBy": "is not a mapping of settings",
    "false": "is not a mapping of settings",
    "groupBy: socket\ngroupBy: machine": "line 1, column 1: a key is given twice in one mapping",
    "groupBy: [": "is not valid YAML",
    "a: &x [1]\nb: *x": "aliases are not read",
    "": "is empty",
}


@pytest.mark.parametrize(("text", "says"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_wrong_in_a_file_is_said_with_file_place_and_reason(file, text, says):
    with pytest.raises(BadInputError) as error:
        read(file, text)
    assert str(error.value).startswith(f"{file}: ")
    assert says in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"absent\.yaml: cannot be read: No such file"):
        read_config(tmp_path / "absent.yaml")


def test_a_wrong_flag_is_named_as_it_is_typed_and_the_file_is_not_blamed(file):
    with pytest.raises(BadInputError) as error:
        read(file, "groupBy: socket", kubelet_root_dir="kubelet")
    assert str(error.value) == "--kubelet-root-dir: 'kubelet' is not an absolute path"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", ("", 8080)),
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::]:0", ("::", 0)),
        ("[fe80::1]:65535", ("fe80::1", 65535)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_addresses_have_a_host_and_a_port(text, address):
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["", "8080", "::8080", "host:", "host:-1", "host:65536", "host:²", "[::1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match=r"is no (address|port)"):
        read_address(text)


@pytest.mark.parametrize(
    ("text", "external"),
    {
        "groupBy: machine": False,
        "groupBy: machine\nallocator: cpumanager": False,
        "groupBy: machine\nallocator: external": True,
        "groupBy: machine\nmachineAllocation: external": True,
        "groupBy: machine\nallocator: external\nmachineAllocation: external": True,
    }.items(),
)
def test_an_external_allocator_goes_by_either_name(file, text, external):
    assert read(file, text).is_external is external
