"""Masks from cgroup files."""

import pytest

from driver.nri.kernel import Kernel, folder_of
from models import to_mask


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_v1_is_read_below_the_cpuset_controller(tmp_path):
    write(tmp_path / "cpuset/kubepods/pod1/abc/cpuset.cpus", "2-3,8\n")
    assert Kernel(tmp_path)("/kubepods/pod1/abc") == to_mask({2, 3, 8})


def test_cgroup_v2_says_what_holds_not_what_was_set(tmp_path):
    write(tmp_path / "kubepods/pod1/abc/cpuset.cpus", "2-3\n")
    write(tmp_path / "kubepods/pod1/abc/cpuset.cpus.effective", "0-1\n")
    assert Kernel(tmp_path)("/kubepods/pod1/abc") == to_mask({0, 1})


def test_where_nothing_was_set_what_holds_counts(tmp_path):
    write(tmp_path / "kubepods/pod1/abc/cpuset.cpus", "\n")
    write(tmp_path / "kubepods/pod1/abc/cpuset.cpus.effective", "0-7\n")
    assert Kernel(tmp_path)("kubepods/pod1/abc") == to_mask(range(8))


def test_a_cgroup_whose_parent_passes_no_cpus_on_has_those_of_its_parent(tmp_path):
    write(tmp_path / "kubepods/cpuset.cpus.effective", "4-7\n")
    write(tmp_path / "kubepods/cgroup.subtree_control", "cpu memory\n")
    write(tmp_path / "kubepods/pod1/cgroup.subtree_control", "cpu memory\n")
    write(tmp_path / "kubepods/pod1/abc/cgroup.procs", "")
    assert Kernel(tmp_path)("kubepods/pod1/abc") == to_mask({4, 5, 6, 7})


def test_a_cgroup_that_is_being_removed_does_not_count_for_its_parent(tmp_path):
    write(tmp_path / "kubepods/cpuset.cpus.effective", "4-7\n")
    write(tmp_path / "kubepods/cgroup.subtree_control", "cpuset cpu\n")
    write(tmp_path / "kubepods/abc/cgroup.procs", "")
    assert Kernel(tmp_path)("kubepods/abc") is None
    assert Kernel(tmp_path)("kubepods/gone") is None


def test_a_cgroup_of_v2_may_be_named_cpuset(tmp_path):
    write(tmp_path / "cgroup.controllers", "cpuset cpu\n")
    write(tmp_path / "cpuset/cgroup.procs", "")
    write(tmp_path / "abc/cpuset.cpus.effective", "3\n")
    assert Kernel(tmp_path)("abc") == to_mask({3})


def test_a_slice_of_systemd_lies_within_the_slices_its_name_names(tmp_path):
    inside = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope"
    write(tmp_path / inside / "cpuset.cpus.effective", "5\n")
    assert Kernel(tmp_path)("kubepods-burstable-pod1_2.slice:cri-containerd:abc") == to_mask({5})


@pytest.mark.parametrize(
    ("cgroup", "folder"),
    [
        ("-.slice:cri:abc", "cri-abc.scope"),
        ("a.slice::abc", "a.slice/abc.scope"),
        ("a.slice:cri:b.slice", "a.slice/b.slice"),
        ("/a/b:c:d", "a/b:c:d"),
        ("a.slice:cri:../../etc", "a.slice/cri-....etc.scope"),
    ],
)
def test_forms_of_a_cgroup_path(cgroup, folder):
    assert str(folder_of(cgroup)) == folder


@pytest.mark.parametrize(
    "cgroup", ["", "/", "/a/../../etc", "..", "a\0b", "a" * 5000, "a-" * 3000 + ".slice:b:c", "::.."]
)
def test_a_hostile_path_or_none_is_not_followed(tmp_path, cgroup):
    write(tmp_path / "cpuset.cpus.effective", "1\n")
    assert Kernel(tmp_path / "sub")(cgroup) is None


@pytest.mark.parametrize("text", ["", "nonsense", "9-2", "0-99999999999"])
def test_what_cannot_be_read_is_unknown(tmp_path, text):
    write(tmp_path / "a/cpuset.cpus.effective", text)
    assert Kernel(tmp_path)("/a") is None
