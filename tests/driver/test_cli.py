"""The command ``cpusat-driver``: how it finds ``run``, and what it says of mistakes."""

import logging
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from driver import logs
from driver.cli import main
from driver.kubelet.folders import Folders


def call(*line):
    return CliRunner().invoke(main, line, prog_name="cpusat-driver")


@pytest.fixture
def served(monkeypatch):
    """Configurations that the driver was started with."""
    configs = []
    monkeypatch.setitem(sys.modules, "driver.serve", SimpleNamespace(run=configs.append))
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(logs.atexit, "register", lambda _: None)
    level = root.level
    yield configs
    root.setLevel(level)


@pytest.mark.parametrize("command", [[], ["run"]])
def test_run_is_what_is_done_if_nothing_else_is_named(served, tmp_path, command):
    file = tmp_path / "config.yaml"
    file.write_text("groupBy: socket")
    result = call(*command, "--config", str(file), "--bind-address=:9000")
    assert (result.exit_code, result.output) == (0, "")
    assert [(config.group_by, config.bind_address) for config in served] == [("socket", ":9000")]


def test_without_any_argument_the_driver_runs_with_its_defaults(served):
    assert call().exit_code == 0
    assert len(served) == 1


def test_all_flags_of_dra_driver_cpu_are_known(served):
    result = call(
        "--v=4",
        "--cpu-device-mode=grouped",
        "--group-by=machine",
        "--reserved-cpus=0-1",
        "--hostname-override=worker",
        "--sysfs-overlay=/etc/overlay.yaml",
        "--kubeconfig=/etc/kubeconfig",
        "--kubelet-root-dir=/data/kubelet",
        "--expose-pcie-roots",
    )
    assert (result.exit_code, result.output) == (0, "")
    (config,) = served
    assert (config.group_by, config.reserved_cpus, config.hostname_override) == ("machine", {0, 1}, "worker")
    assert (config.sysfs_overlay, config.kubeconfig) == ("/etc/overlay.yaml", "/etc/kubeconfig")
    assert str(Folders(config.kubelet_root_dir).plugin) == "/data/kubelet/plugins/dra.cpu"
    assert config.expose_pcie_roots


@pytest.mark.parametrize(("flag", "exposed"), [("=true", True), ("=false", False), ("", True)])
def test_the_switch_takes_a_value_as_go_programs_have_it(served, flag, exposed):
    assert call(f"--expose-pcie-roots{flag}").exit_code == 0
    assert served[0].expose_pcie_roots is exposed


@pytest.mark.parametrize(("verbosity", "level"), [([], logging.INFO), (["--v", "6"], logging.DEBUG)])
def test_only_a_high_verbosity_logs_every_step(served, verbosity, level):
    assert call(*verbosity).exit_code == 0
    assert logging.getLogger().level == level


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--config", "/absent.yaml"], "/absent.yaml: cannot be read: No such file or directory"),
        (["--bind-address", "8080"], "--bind-address: '8080' is no address"),
        (["--reserved-cpus", "0-"], "--reserved-cpus: '0-' is not a CPU number"),
        (["--bogus"], "No such option '--bogus'"),
        (["stat"], "No such command 'stat'"),
        (["run", "surplus"], "unexpected extra argument"),
        (["--v", "-1"], "--v"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(served, line, says):
    result = call(*line)
    assert result.exit_code == 2
    assert result.output.startswith("error: ")
    assert result.output.count("\n") == 1
    assert says in result.output
    assert not served


def test_help_names_the_commands_and_loads_neither_grpc_nor_the_solver():
    script = (
        "import sys; from driver.cli import main\n"
        "try: main(['--help'])\n"
        "finally: assert not {'grpc', 'ortools', 'numpy', 'lightkube', 'networkx'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "run" in done.stdout
    assert "state" in done.stdout


@pytest.mark.parametrize("package", ["grpc", "lightkube", "prometheus_client", "google"])
def test_what_the_driver_needs_and_lacks_is_named_with_the_command_that_installs_it(package):
    script = f"import sys; sys.modules[{package!r}] = None; from driver.cli import main; main([])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: the driver needs {package}")
    assert done.stderr.endswith(
        "which is not installed; install cpusat with its extra: pip install 'cpusat[driver]'\n"
    )


def test_the_version_is_told():
    assert call("--version").output.startswith("cpusat")
