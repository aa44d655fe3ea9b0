"""docker-compose.yml and the code agree: servers, versions, commands, variables, files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from cronstream.settings import PREFIX, known_variables
from cronstream.topics import Topics
from stack import compose_secrets, connect, kafka, properties
from stack.home import Home
from stack.services import SERVICES

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
ALL: dict[str, Any] = COMPOSE["services"]
SERVERS = {"postgres", "etcd", "kafka", "connect"}
PRODUCT = {name: service for name, service in ALL.items() if name not in SERVERS}


def pom_version(pom: str, name: str) -> str:
    tree = ElementTree.parse(ROOT / "connectors" / pom / "pom.xml")
    found = tree.find(f".//{{http://maven.apache.org/POM/4.0.0}}{name}")
    assert found is not None
    assert found.text
    return found.text


def place(service: str) -> dict[str, str]:
    return properties.parse(ALL[service]["environment"]["PLACE"])


def test_it_has_every_server_and_process() -> None:
    assert ALL.keys() >= SERVERS
    natively = {service.module for service in SERVICES.values()} | {"cli"}
    assert {service["command"][2] for service in PRODUCT.values()} == natively


@pytest.mark.parametrize("name", ALL)
def test_images_are_pinned_or_built_here(name: str) -> None:
    service = ALL[name]
    tag = service["image"].rpartition(":")[2]
    assert service.get("build") == "." or re.match(r"v?\d+\.\d+", tag)


def test_versions_are_those_of_the_native_stack() -> None:
    assert ALL["kafka"]["image"].endswith(":" + pom_version("kafka", "kafka.version"))
    assert ALL["connect"]["image"].endswith(":" + pom_version("debezium", "debezium.version"))
    assert pom_version("debezium", "kafka.version") == pom_version("kafka", "kafka.version")


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_servers_have_health_checks_and_no_fixed_public_port(name: str) -> None:
    assert ALL[name]["healthcheck"]["test"]
    assert all(port.startswith("127.0.0.1:") for port in ALL[name]["ports"])


@pytest.mark.parametrize("name", PRODUCT)
def test_processes_wait_for_what_they_need(name: str) -> None:
    waits = PRODUCT[name]["depends_on"]
    if name == "setup":
        assert waits.keys() == SERVERS
        assert {wait["condition"] for wait in waits.values()} == {"service_healthy"}
    else:
        assert waits == {"setup": {"condition": "service_completed_successfully"}}


@pytest.mark.parametrize("name", PRODUCT)
def test_variables_are_settings_that_exist(name: str, tmp_path: Path) -> None:
    environment = PRODUCT[name]["environment"]
    assert set(environment) <= known_variables()
    assert set(Home(tmp_path).environment()) - {f"{PREFIX}HOME"} <= set(environment)


def test_variables_in_the_dockerfile_are_settings_that_exist() -> None:
    named = set(re.findall(rf"{PREFIX}\w+", (ROOT / "Dockerfile").read_text()))
    assert named <= known_variables()


@pytest.mark.parametrize("name", PRODUCT)
def test_commands_are_entry_points(name: str) -> None:
    python, flag, module, *_ = PRODUCT[name]["command"]
    assert (python, flag) == ("python", "-m")
    folder = ROOT.joinpath(*module.split("."))
    assert (folder / "__main__.py").exists() or folder.with_suffix(".py").exists()
    copied = re.findall(r"^COPY (\w+) \w+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert module.partition(".")[0] in copied


def test_two_coordinators_so_that_one_may_die() -> None:
    assert ALL["coordinator"]["deploy"]["replicas"] == 2


def test_the_same_configuration_files_are_mounted() -> None:
    mounted = {volume.split(":")[0] for name in SERVERS for volume in ALL[name].get("volumes", []) if volume[0] == "."}
    assert {
        "./connectors/kafka/server.properties",
        "./connectors/connect/worker.properties",
        "./stack/config/postgresql.conf",
        "./stack/config/roles.sql",
    } <= mounted
    assert all((ROOT / file).is_file() for file in mounted)


def test_what_differs_by_place_is_the_same_set_of_settings(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert place("kafka").keys() == kafka.place(home).keys()
    assert place("connect").keys() == connect.place(home).keys()
    properties.render(kafka.TEMPLATE.read_text(), place("kafka"))
    properties.render(connect.TEMPLATE.read_text(), place("connect"))


def test_addresses_name_services_and_their_ports() -> None:
    settings = PRODUCT["coordinator"]["environment"]
    assert settings["CRONSTREAM_KAFKA"] in place("kafka")["advertised.listeners"]
    assert settings["CRONSTREAM_CONNECT"] == f"http://{place('connect')['rest.advertised.host.name']}:8083"
    assert place("connect")["bootstrap.servers"] == settings["CRONSTREAM_KAFKA"]
    assert settings["CRONSTREAM_ETCD"] == "etcd:2379"
    streams = PRODUCT["streams"]["environment"]
    assert streams["CRONSTREAM_STATUS_ADDRESS"] == f"streams:{streams['CRONSTREAM_STATUS_PORT']}"


def test_topics_are_made_by_setup_alone() -> None:
    broker = properties.parse(kafka.TEMPLATE.read_text())
    assert broker["auto.create.topics.enable"] == "false"
    worker = properties.parse(connect.TEMPLATE.read_text())
    internal = {value for key, value in worker.items() if key.endswith("storage.topic")}
    assert internal.isdisjoint(spec.name for spec in Topics().specs(4))
    assert len(internal) == 3


def test_secrets_are_files_and_no_value_is_in_the_file() -> None:
    files = {secret["file"] for secret in COMPOSE["secrets"].values()}
    folder = compose_secrets.FOLDER.relative_to(ROOT)
    assert {str(Path(file).parent) for file in files} == {str(folder)}
    text = (ROOT / "docker-compose.yml").read_text()
    assert not re.search(r"PASSWORD(?!_FILE)\w*:", text)
    uses = [use for service in ALL.values() for use in service.get("secrets", [])]
    assert {use if isinstance(use, str) else use["source"] for use in uses} == COMPOSE["secrets"].keys()
