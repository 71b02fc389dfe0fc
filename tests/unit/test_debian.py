# SPDX-License-Identifier: Apache-2.0
"""What the Debian packages have, as far as it can be seen without building them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ri2n_sdn.apps.config import ClusterConfig, load_cluster_config
from ri2n_sdn.apps.schema import cluster_schema
from ri2n_sdn.cli.config import kind_of
from ri2n_sdn.cli.main import tree

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "debian"
SCRIPTS = ROOT / "ovs-host-scripts"
RUNS_A_CLUSTER = ("ri2n-controller", "ri2n-host", "ri2n-web")
FORBIDDEN = re.compile(
    r"(gcc|g\+\+|clang|cpp|cargo|rustc)(-[0-9]+|-web)?|make|build-essential|.*-dev|.*mpi.*"
    r"|slurm.*|.*(pytest|hypothesis).*|iperf3|tcpdump"
)
"""Compilers, MPI and what only labs and tests need."""
PROGRAMS = ("ri2n-fast", "ri2n-reorder")
"""The programs in Rust."""


def stanzas() -> dict[str, dict[str, str]]:
    """The fields of each binary package in debian/control, by the package's name."""
    found = {}
    for text in (DEBIAN / "control").read_text().split("\n\n"):
        unfolded = re.sub(r"\n[ \t]+", " ", text)
        fields = dict(line.split(": ", 1) for line in unfolded.splitlines() if ": " in line)
        if "Package" in fields:
            found[fields["Package"]] = fields
    return found


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of ri2n-host, without those that debhelper adds."""
    folder = tmp_path_factory.mktemp("host")
    made = folder / "made"
    (made / "man/man8").mkdir(parents=True)
    (made / "ovs-host-scripts").symlink_to(SCRIPTS)
    for program in PROGRAMS:
        shutil.copy(ROOT / program.removeprefix("ri2n-") / f"{program}.8", made / "man/man8")
        (made / program).write_bytes(b"\x7fELF")
    subprocess.run([DEBIAN / "install-host", made, folder / "root"], cwd=ROOT, check=True)
    return folder / "root"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of ri2n-controller and ri2n-web, without Python packages and debhelper's files."""
    root = tmp_path_factory.mktemp("controller") / "root"
    for script in ("install-controller", "install-web"):
        subprocess.run([DEBIAN / script, root], cwd=ROOT, check=True)
    return root


def test_there_are_the_four_packages() -> None:
    assert set(stanzas()) == {*RUNS_A_CLUSTER, "ri2n-lab"}


@pytest.mark.parametrize("package", RUNS_A_CLUSTER)
@pytest.mark.parametrize("field", ["Pre-Depends", "Depends", "Recommends"])
def test_what_runs_a_cluster_pulls_in_nothing_for_builds_or_tests(package: str, field: str) -> None:
    names = re.split(r"[,|]\s*", stanzas()[package].get(field, ""))
    assert not [name for name in names if FORBIDDEN.fullmatch(name.split(" ")[0])]


def test_a_host_gets_no_python_package_of_ours() -> None:
    depends = stanzas()["ri2n-host"]["Depends"]
    assert "python" not in depends and "ri2n-controller" not in depends
    assert {"openvswitch-switch", "nftables", "iproute2"} <= set(re.findall(r"[a-z0-9-]+", depends))


def test_the_patterns_know_what_they_forbid() -> None:
    for name in ("gcc", "cargo-web", "libopenmpi3", "openmpi-bin", "python3-pytest", "libc6-dev"):
        assert FORBIDDEN.fullmatch(name), name
    for name in ("openvswitch-switch", "nftables", "libgcc-s1", "gcc-12-base", "procps", "kmod"):
        assert not FORBIDDEN.fullmatch(name), name


def test_every_host_script_is_in_the_package_and_can_be_run_where_it_could(host: Path) -> None:
    packaged = {path.name: path for path in host.rglob("*") if path.is_file()}
    for script in SCRIPTS.rglob("*"):
        if not script.is_file() or script.name in ("ri2n-controller.service", "ri2n-web.service"):
            continue
        assert script.name in packaged, f"{script.name} is not in ri2n-host"
        if "usr/share/ri2n" in str(packaged[script.name]):
            assert os.access(packaged[script.name], os.X_OK) == os.access(script, os.X_OK)


def test_commands_are_on_the_path_of_root(host: Path) -> None:
    for link in (host / "usr/sbin").iterdir():
        target = host / str(link.readlink()).lstrip("/")
        assert os.access(target, os.X_OK), link
    documented = re.findall(
        r"ln -sf /usr/local/lib/ri2n/\{([a-z,-]+)\}", (ROOT / "docs/host.md").read_text()
    )
    names = {link.name for link in (host / "usr/sbin").iterdir()}
    assert documented and names == {*documented[0].split(","), *PROGRAMS}


def test_no_place_of_an_installation_by_hand_is_left(host: Path, controller: Path) -> None:
    for root in (host, controller):
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.name not in PROGRAMS:
                text = path.read_text()
                assert "/usr/local/lib" not in text and "/opt/ri2n_sdn" not in text, path


def test_systemd_understands_the_units_and_their_programs_are_there(
    host: Path, controller: Path, tmp_path: Path
) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    command = re.compile(r"^(ExecStart|ExecReload)=(\S+)(?:.*\\\n)*.*", flags=re.M)
    units = [
        unit for root in (host, controller) for unit in (root / "lib/systemd/system").iterdir()
    ]
    kinds = ("*.service", "*.timer")
    assert {unit.name for unit in units} == {
        path.name for kind in kinds for path in SCRIPTS.glob(kind)
    }
    # A timer's service comes before it.
    for unit in sorted(units):
        text = unit.read_text()
        programs = [program for _, program in command.findall(text)]
        assert programs or unit.suffix == ".timer"
        for program in programs:
            assert any(
                os.access(root / program.lstrip("/"), os.X_OK) for root in (host, controller)
            ), program
        (tmp_path / unit.name).write_text(command.sub(r"\1=/bin/true", text))
        argv = ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if unit.name in line]
        assert not said


@pytest.mark.parametrize("package", ["ri2n-controller", "ri2n-web"])
def test_a_service_has_a_user_and_a_folder_of_its_own(controller: Path, package: str) -> None:
    unit = (controller / f"lib/systemd/system/{package}.service").read_text()
    assert re.findall(r"^User=(.*)$", unit, flags=re.M) == [package]
    assert f"u {package} " in (DEBIAN / f"{package}.sysusers").read_text()
    # Without this word, debhelper 13 leaves the user out without saying so.
    assert "--with installsysusers" in (DEBIAN / "rules").read_text()
    assert f"-p {package}" in (DEBIAN / "rules").read_text()
    assert "DynamicUser" not in unit
    assert f"\nStateDirectory={package}\nStateDirectoryMode=0700\n" in unit
    assert re.search(rf"^Environment=\w+=/var/lib/{package}$", unit, flags=re.M)
    assert f"rm -rf /var/lib/{package}\n" in (DEBIAN / f"{package}.postrm").read_text()


def test_only_the_web_process_may_use_its_socket_and_it_reads_no_key(controller: Path) -> None:
    units = controller / "lib/systemd/system"
    unit = (units / "ri2n-controller.service").read_text()
    assert " controller --web-group ri2n-web $RI2N_CONTROLLER_OPTIONS\n" in unit
    # It can give a socket to its own group alone, and reads its files by the other one.
    assert "\nGroup=ri2n-web\nSupplementaryGroups=ri2n-controller\n" in unit
    assert "\ng ri2n-web -\n" in (DEBIAN / "ri2n-controller.sysusers").read_text()
    assert "ri2n-controller" not in re.findall(
        r"^\w*Groups?=(.*)$", (units / "ri2n-web.service").read_text(), flags=re.M
    )


@pytest.mark.parametrize("name", ["controller", "web"])
def test_options_files_are_all_comments_and_their_examples_are_taken(
    controller: Path, name: str
) -> None:
    text = (controller / f"etc/ri2n/{name}.conf").read_text()
    unit = (controller / f"lib/systemd/system/ri2n-{name}.service").read_text()
    assert f"\nEnvironmentFile=-/etc/ri2n/{name}.conf\n" in unit
    variable = f"RI2N_{name.upper()}_OPTIONS"
    assert f"${variable}\n" in unit
    used = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert used in ([f"{variable}="], [f"{variable}=--config /etc/ri2n/cluster.yaml"])
    command = tree().load(name)
    known = {option for parameter in command.params for option in parameter.opts}
    examples = re.findall(rf"^#{variable}=(.*)$", text, flags=re.M)
    assert examples
    for option in re.findall(r"(?<![\w-])--[a-z-]+", text.replace("--help", "")):
        assert option in known, f"ri2n {name} has no {option}"


def test_commands_look_where_the_service_keeps_its_memory(controller: Path) -> None:
    """Otherwise a memory that is brought from another machine is put where nobody looks."""
    unit = (controller / "lib/systemd/system/ri2n-controller.service").read_text()
    (folder,) = re.findall(r"^Environment=RI2N_STATE_DIR=(.*)$", unit, flags=re.M)
    script = (controller / "usr/bin/ri2n").read_text()
    assert script.splitlines()[0].endswith("/python3 -I")
    told = "import os, sys, types; main = lambda: print(os.environ['RI2N_STATE_DIR'])\n"
    told += "for name in ('ri2n_sdn', 'ri2n_sdn.cli', 'ri2n_sdn.cli.main'):\n"
    told += "    sys.modules[name] = types.SimpleNamespace(main=main, __path__=[])\n"
    for given, wanted in ({}, folder), ({"RI2N_STATE_DIR": "/elsewhere"}, "/elsewhere"):
        argv = [sys.executable, "-I", "-c", told + script]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env=given)
        assert done.stdout == f"{wanted}\n"


def test_nothing_of_a_host_starts_by_itself() -> None:
    rules = re.sub(r"\\\n\s*", " ", (DEBIAN / "rules").read_text())
    for line in rules.splitlines():
        if line.startswith("\tdh_installsystemd -p ri2n-host "):
            assert "--no-start" in line, line
            if "ri2n-host.service" in line:
                assert {"--no-enable", "--no-restart-after-upgrade"} <= set(line.split()), line


def test_the_shipped_cluster_yaml_is_all_defaults_and_its_comments_are_right(
    tmp_path: Path,
) -> None:
    text = (DEBIAN / "cluster.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=/usr/share/ri2n/cluster.schema.json\n")
    assert load_cluster_config(DEBIAN / "cluster.yaml") == ClusterConfig()
    assert kind_of(DEBIAN / "cluster.yaml") == "cluster.yaml"
    used = tmp_path / "cluster.yaml"
    used.write_text(re.sub(r"^#(?! )", "", text, flags=re.M).replace("\n#  ", "\n  "))
    assert load_cluster_config(used) != ClusterConfig()


def test_editors_are_told_what_every_key_means() -> None:
    schema = cluster_schema()
    assert set(schema["properties"]) == set(ClusterConfig.model_fields)
    for name in ("", "_Hbspan", "_HostConfig", "_NicConfig", "_Class", "_Placement"):
        for key, value in (schema["$defs"][name] if name else schema)["properties"].items():
            assert value.get("description"), f"{name}.{key}"


def test_the_schema_lists_the_same_choices_as_the_controller(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    for key in ("strategy", "slots"):
        for choice in cluster_schema()["properties"][key]["enum"]:
            file.write_text(f"{key}: {choice}\n")
            assert getattr(load_cluster_config(file), key) == choice
