# SPDX-License-Identifier: Apache-2.0
"""The Ansible role as far as it can be seen without a machine: syntax, names and variables."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ANSIBLE = ROOT / "deploy/ansible"
ROLE = ANSIBLE / "roles/ri2n"
FILES = sorted(ANSIBLE.rglob("*.yml"))
CHANGES_NOTHING_BY_ITSELF = ("command", "shell")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tasks_of(path: Path) -> Iterator[dict[str, Any]]:
    """All tasks of a file, also those in blocks."""
    todo = list(read(path))
    while todo:
        task = todo.pop(0)
        yield task
        todo[:0] = task.get("block", [])


FILES = sorted([*ROLE.glob("tasks/*.yml"), *ROLE.glob("handlers/*.yml")])
TASKS = [
    pytest.param(task, id=f"{path.stem}: {task.get('name')}")
    for path in FILES
    for task in tasks_of(path)
]


def test_ansible_takes_the_playbook() -> None:
    if shutil.which("ansible-playbook") is None:
        pytest.skip("needs ansible-playbook")
    argv = ["ansible-playbook", "--syntax-check", "-i", "inventory.example.yml", "site.yml"]
    done = subprocess.run(argv, cwd=ANSIBLE, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_a_name_and_says_when_it_changes_something(task: dict[str, Any]) -> None:
    assert re.match(r"[A-Z].*[^.]$", task["name"])
    modules = [key for key in task if "." in key]
    # The full name of a module cannot mean another one.
    assert "block" in task or len(modules) == 1
    for module in modules:
        assert module.startswith("ansible.builtin.")
        if module.rpartition(".")[2] in CHANGES_NOTHING_BY_ITSELF:
            assert "changed_when" in task
        if module.rpartition(".")[2] in ("template", "copy", "file"):
            # A number would be read as a decimal one.
            assert isinstance(task[module].get("mode"), str)


def test_files_that_programs_read_at_boot_are_checked_before_they_are_replaced() -> None:
    """With a mistake in them, the next boot would bring no network and no controller."""
    checks = {
        template["dest"]: template["validate"]
        for path in FILES
        for task in tasks_of(path)
        if "validate" in (template := task.get("ansible.builtin.template", {}))
    }
    assert checks == {
        "/etc/ri2n/cluster.yaml": "/usr/bin/ri2n check-config %s",
        "/etc/ri2n/host.conf": "/usr/sbin/host-up --config %s --skip-missing --check",
    }


def test_a_package_that_was_not_built_is_one_clear_line(tmp_path: Path) -> None:
    if shutil.which("ansible-playbook") is None:
        pytest.skip("needs ansible-playbook")
    (check,) = (
        task for task in tasks_of(ROLE / "tasks/packages.yml") if "ansible.builtin.assert" in task
    )
    (tmp_path / "ri2n-host_1_amd64.deb").touch()
    variables = {"ri2n_packages": str(tmp_path), "ri2n_wanted": ["ri2n-host", "ri2n-web"]}
    play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": [check]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "play.yml"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{tmp_path} has no ri2n-web_*.deb" in done.stdout and "ri2n-host_" not in done.stdout


def test_every_variable_is_documented_and_used() -> None:
    defaults = read(ROLE / "defaults/main.yml")
    options = read(ROLE / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert set(defaults) == set(options)
    text = "".join(path.read_text() for path in [*ROLE.glob("t*/*"), *ROLE.glob("handlers/*")])
    manual = (ROOT / "docs/install.md").read_text()
    for name, option in options.items():
        assert option["default"] == defaults[name] and option["description"]
        assert re.search(rf"\b{name}\b", text), f"{name} is not used"
        assert f"`{name}`" in manual, f"docs/install.md does not say what {name} is"
    known = {*defaults, *re.findall(r"(?:register: |^ +)(ri2n_\w+)(?::|$)", text, flags=re.M)}
    assert set(re.findall(r"\bri2n_\w+", text)) - {"ri2n_hosts", "ri2n_control"} <= known


def test_who_notifies_names_a_handler() -> None:
    handlers = {task["name"] for task in tasks_of(ROLE / "handlers/main.yml")}
    notified = {task.get("notify") for path in FILES for task in tasks_of(path)} - {None}
    assert notified == handlers


@pytest.mark.parametrize("path", sorted(ROLE.glob("templates/*.j2")), ids=lambda path: path.name)
def test_a_template_says_who_wrote_the_file_and_is_used(path: Path) -> None:
    assert "{{ ansible_managed }}" in path.read_text().splitlines()[0:2][-1] + path.read_text()
    name = path.name
    text = "".join(file.read_text() for file in ROLE.glob("tasks/*.yml"))
    assert name in text or name.removesuffix(".j2") in text


@pytest.mark.parametrize("tool", ["ifupdown", "networkd", "NetworkManager"])
def test_the_packages_examples_are_those_of_the_role(tool: str) -> None:
    """What the role writes for the example's addresses is what the package's example says."""
    jinja2 = pytest.importorskip("jinja2")
    folder = {"networkd": "systemd-networkd"}.get(tool, tool)
    examples = {
        path.name: path for path in (ROOT / "debian/examples" / folder).iterdir() if path.is_file()
    }
    assert examples
    for name, example in examples.items():
        template = ROLE / "templates" / ("ifupdown.j2" if tool == "ifupdown" else f"{name}.j2")
        environment = jinja2.Environment(trim_blocks=True)
        environment.filters["regex_replace"] = lambda text, old, new: re.sub(old, new, text)
        written = environment.from_string(template.read_text()).render(
            ri2n_nics=["eth0", "-", "eth1"],  # a number that is kept free
            ri2n_address="192.0.2.1/24",
            ri2n_gateway="192.0.2.254",
            ri2n_host_options=[],
            ansible_managed="x",
        )
        assert settings(written) == settings(example.read_text()), name


def test_to_networkmanager_a_bridge_in_user_space_is_a_tap() -> None:
    jinja2 = pytest.importorskip("jinja2")
    template = (ROLE / "templates/br-ri2n.nmconnection.j2").read_text()
    written = (
        jinja2.Environment(trim_blocks=True)
        .from_string(template)
        .render(
            ri2n_address="192.0.2.1/24",
            ri2n_gateway="",
            ri2n_host_options=["nic-mtu 1522", "datapath netdev"],
            ansible_managed="x",
        )
    )
    keys = configparser.ConfigParser()
    keys.read_string(written)
    assert keys["connection"]["type"] == "tun" and keys["tun"]["mode"] == "2"
    assert keys["ipv4"]["address1"] == "192.0.2.1/24"


def settings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
