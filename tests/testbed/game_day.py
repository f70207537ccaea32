"""Six incidents on the testbed: `make game-day`. For each, the alert that fires, and the runbook's way out.

A real Prometheus scrapes the agent each second and evaluates daemonset/monitoring/rules.yaml, in which a
minute is a second: an alert that fires here after 5 s does so after 5 minutes there. Ages in a rule's
expression stay, as the agent's own times do. In place of `kubectl logs` is the agent's log. Exits with 0 only
if each alert fired, its section of docs/runbook.md led to the cause, and the fix ended it.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import yaml

from tests.daemon.agents import Agents
from tests.daemon.cluster_api import ClusterApi
from tests.daemon.made_objects import made_service
from tests.daemon.managed_state import names
from tests.daemon.running_agent import RunningAgent
from tests.daemon.settings import write_config
from tests.testbed import addresses
from tests.testbed.demo_screen import Screen
from tests.testbed.errors import NotObservedError
from tests.testbed.inside import inside
from tests.testbed.processes import Process
from tests.testbed.telling import FAILED, Step, end_as_by_ctrl_c, play, tell
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

_ROOT = Path(__file__).parents[2]
_RULES = _ROOT / "daemonset" / "monitoring" / "rules.yaml"
_RUNBOOK = _ROOT / "docs" / "runbook.md"
_HAPROXY = "/usr/sbin/haproxy"
_PROMETHEUS = 9090
_UNITS = {"m": 1, "h": 60, "d": 1440}
_LONGEST_SECONDS = 120.0
_REWRITER = (
    "while :; do sed -i '/^# BEGIN nodeagent/,/^# END nodeagent/d' /etc/hosts; read -t 0.3 <> <(:); done"
)


@dataclass
class Day:
    """What the incidents happen to, and when each was noticed and fixed."""

    world: World
    api: ClusterApi
    agents: Agents
    agent: RunningAgent
    screen: Screen
    running: list[Process] = field(default_factory=list)
    times: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Incident:
    """A fault, the alert that is to fire, where the runbook's check leads, and the runbook's fix."""

    title: str
    alert: str
    strike: Callable[[Day], object]
    check: Callable[[Day], str]
    clue: str
    fix: Callable[[Day], object]


def scaled_rules(text: str) -> dict[str, Any]:
    """Return the alert rules as a file for Prometheus, with a second for each minute. Pure."""
    groups: dict[str, Any] = {"groups": yaml.safe_load(text)["spec"]["groups"]}
    for group in groups["groups"]:
        for rule in group["rules"]:
            rule["for"] = f"{_seconds(rule.get('for', '0m'))}s"
            rule["expr"] = re.sub(r"\b(\d+[mhd])\b", lambda found: f"{_seconds(found[1])}s", rule["expr"])
    return groups


def runbook_section(text: str, alert: str) -> str:
    """Return an alert's section of the runbook, without its heading; empty if there is none. Pure."""
    found = re.search(rf"^### {alert}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def _seconds(minutes: str) -> int:
    return int(minutes[:-1]) * _UNITS[minutes[-1]]


def _hide_haproxy(day: Day) -> None:
    day.world.node1.run(["mount", "--bind", "/dev/null", _HAPROXY])
    day.world.node1.run(["pkill", "-KILL", "-x", "haproxy"])


def _stop_controllers(day: Day) -> None:
    for controller in day.world.ingress:
        controller.process.stop()


def _see_controllers(day: Day) -> str:
    states = [f"{one.host.name}: {'ready' if one.process.running else 'ended'}" for one in day.world.ingress]
    return "ingress controller's pods: " + ", ".join(states)


def _start_controllers(day: Day) -> None:
    for controller in day.world.ingress:
        controller.start_again()


def _deny(day: Day) -> None:
    day.api.access.allow_only([])
    day.api.end_watches()


def _rewrite_hosts(day: Day) -> None:
    day.running.append(day.world.node1.popen(["bash", "-c", _REWRITER], log="configuration-management"))


def _stop_rewriting(day: Day) -> None:
    day.running.pop().stop()
    day.screen.command("", "kubectl -n nodeagent delete pod POD")
    day.agent.stop()
    day.agent = day.agents.start_ready()
    _scrape(day)


def _events(day: Day) -> str:
    wait_until(lambda: bool(day.api.store.all("events")), "an Event", seconds=_LONGEST_SECONDS)
    return "\n".join(f"{one['reason']}: {one['message']}" for one in day.api.store.all("events"))


def _log(day: Day) -> str:
    """Return the log's last lines, as `kubectl logs --tail=50` shows them, without debugging."""
    lines = [line for line in day.agent.lines()[-50:] if line["level"] != "DEBUG"]
    kept = ("message", "component", "reason", "err", "found")
    return "\n".join(" ".join(str(line[key]) for key in kept if key in line) for line in lines)


INCIDENTS = (
    Incident(
        "HAProxy can't run any more",
        "NodeagentRelayDown",
        strike=_hide_haproxy,
        check=_log,
        clue="haproxy",
        fix=lambda day: day.world.node1.run(["umount", _HAPROXY]),
    ),
    Incident(
        "The ingress controller's pods end",
        "NodeagentRelayUpstreamDown",
        strike=_stop_controllers,
        check=_see_controllers,
        clue="ended",
        fix=_start_controllers,
    ),
    Incident(
        "The agent loses its ClusterRole",
        "NodeagentApiUnavailable",
        strike=_deny,
        check=_log,
        clue="403",
        fix=lambda day: day.api.access.allow_all(),
    ),
    Incident(
        "A tool rewrites /etc/hosts all the time",
        "NodeagentDriftConflict",
        strike=_rewrite_hosts,
        check=lambda day: day.world.node1.run(["pgrep", "-af", "/etc/hosts"]).stdout,
        clue="sed -i",
        fix=_stop_rewriting,
    ),
    Incident(
        "A new configuration has a misspelled option",
        "NodeagentConfigRejected",
        strike=lambda day: write_config(day.agent.config, relay={"treads": 2}),
        check=_log,
        clue="treads",
        fix=lambda day: write_config(day.agent.config),
    ),
    Incident(
        "A Service of type LoadBalancer publishes a pod's address",
        "NodeagentLoadBalancerRefused",
        strike=lambda day: day.api.store.create(made_service(0, address=str(addresses.POD1))),
        check=_events,
        clue="BadAddress",
        fix=lambda day: day.api.store.apply(made_service(0)),
    ),
)


def firing(day: Day) -> set[str]:
    """Return the alerts that fire now, as Prometheus says."""
    with inside(day.world.node1), urlopen(f"http://127.0.0.1:{_PROMETHEUS}/api/v1/alerts") as answer:
        found = json.load(answer)["data"]["alerts"]
    return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}


def _run(incident: Incident, day: Day) -> None:
    began = time.monotonic()
    incident.strike(day)
    _await(day, partial(_fires, incident, day), f"the alert {incident.alert}")
    noticed = time.monotonic()
    day.screen.observed(f"{incident.alert} fires after {noticed - began:.0f} s")
    for line in runbook_section(_RUNBOOK.read_text("utf-8"), incident.alert).splitlines():
        day.screen.note(line)
    seen = [line for line in incident.check(day).splitlines() if incident.clue in line]
    if not seen:
        raise NotObservedError(f"{incident.clue!r} where the runbook looks", incident.check(day))
    day.screen.said(seen[-1][:200])
    incident.fix(day)
    fixed = time.monotonic()
    _await(day, lambda: day.world.node1.curl(f"https://{addresses.SITE}/", timeout=1).ok, "the site")
    _await(day, day.agent.in_sync, "the node in sync")
    served = time.monotonic()
    _await(day, lambda: not _fires(incident, day), f"the end of {incident.alert}")
    silent = time.monotonic()
    day.screen.observed(
        f"in sync {served - fixed:.1f} s after the fix, no alert after {silent - fixed:.0f} s"
    )
    day.times.append(
        f"{incident.alert:27} fired after {noticed - began:3.0f} s; served {served - fixed:4.1f} s and "
        f"silent {silent - fixed:3.0f} s after the fix"
    )


def _fires(incident: Incident, day: Day) -> bool:
    return incident.alert in firing(day)


def _await(day: Day, condition: Callable[[], bool], what: str) -> None:
    try:
        wait_until(condition, what, seconds=_LONGEST_SECONDS, every=0.2)
    except Exception as error:
        raise NotObservedError(what, str(error), day.agent.process.log) from error


def _scrape(day: Day) -> None:
    """Let Prometheus find the agent that runs now."""
    file = day.world.tmp / "prometheus" / "targets.yml"
    target = {"targets": [day.agent.telemetry], "labels": {"instance": "node1", "node": "node1"}}
    file.with_suffix(".new").write_text(yaml.safe_dump([target]), "utf-8")
    file.with_suffix(".new").replace(file)


def _start_prometheus(day: Day) -> None:
    """Start Prometheus on node1."""
    folder = day.world.tmp / "prometheus"
    folder.mkdir()
    _scrape(day)
    (folder / "rules.yml").write_text(yaml.safe_dump(scaled_rules(_RULES.read_text("utf-8"))), "utf-8")
    found = {"files": [str(folder / "targets.yml")], "refresh_interval": "1s"}
    job = {"job_name": "nodeagent/nodeagent", "file_sd_configs": [found]}
    settings = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    written = {"global": settings, "rule_files": [str(folder / "rules.yml")], "scrape_configs": [job]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(written), "utf-8")
    listen = f"--web.listen-address=127.0.0.1:{_PROMETHEUS}"
    files = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    day.running.append(day.world.node1.popen(["prometheus", *files, listen], log="prometheus"))
    day.world.node1.await_port(_PROMETHEUS, day.running[0])
    _await(day, lambda: _is_ready(day), "Prometheus being ready")


def _is_ready(day: Day) -> bool:
    try:
        with inside(day.world.node1), urlopen(f"http://127.0.0.1:{_PROMETHEUS}/-/ready"):
            return True
    except HTTPError:
        return False


def perform(screen: Screen) -> int:
    """Bring the world up, let the incidents happen, and take the world down; returns the steps."""
    screen.step("A node with an agent, and Prometheus with the alerts: their minutes are seconds here")
    with World() as world, ClusterApi(world.lb, world.tmp) as api:
        config = write_config(world.tmp / "nodeagent.yaml")
        with Agents(world.node1, api, config) as agents:
            day = Day(world, api, agents, agents.start_ready(), screen)
            try:
                _start_prometheus(day)
                _await(day, lambda: addresses.SITE in names(world.node1), "the site's line")
                play([Step(one.title, partial(_run, one)) for one in INCIDENTS], day, screen)
            finally:
                for process in day.running:
                    process.stop()
        screen.step("What was seen, in seconds; an alert's are minutes with the real rules")
        for line in day.times:
            screen.note(line)
    return 2 + len(INCIDENTS)


def main() -> int:
    """Let all incidents happen; returns the exit code."""
    if os.geteuid() != 0:
        print("The game day makes network namespaces: run it as root (sudo make game-day).", file=sys.stderr)
        return FAILED
    screen = Screen(2 + len(INCIDENTS))
    return tell(lambda: perform(screen), screen, "nothing of it is left")


if __name__ == "__main__":
    end_as_by_ctrl_c()
    sys.exit(main())
