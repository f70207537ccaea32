"""Helm itself uninstalls a release from the simulated API: nodes and CoreDNS are cleaned up first.

The test takes the part of the controllers: it runs the Job's command, lets pods end, and completes the Job.
"""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nodeagent.coredns.coredns_reconciler import CoreDnsReconciler
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.api_servers import ApiServers
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.kubernetes.single_requests import is_going, read_cluster
from release.schemas import CHART
from tests.apiserver import ApiServer
from tests.apiserver.access import rules_bound_to
from tests.apiserver.server import self_signed
from tests.charts.rendering import IMAGE, helm
from tests.coredns import cluster
from tests.testbed.waiting import wait_until

NAMESPACE = "nodeagent"
_RBAC = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
_MADE = (*_RBAC, "serviceaccounts", "configmaps", "daemonsets", "deployments", "jobs")


class Cluster:
    """A cluster with a release in it, and one thread for Helm."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self.api = api
        self._folder = folder
        api.access.require_token("admin", "system:admin")
        self._kubeconfig = api.write_kubeconfig(folder / "admin", "admin")
        self._helm = helm.Config(
            kubeconfig_path=str(self._kubeconfig), namespace=NAMESPACE, storage_driver="memory"
        )
        self._thread = ThreadPoolExecutor(1)
        self._jobs: list[subprocess.Popen[str]] = []

    def close(self) -> None:
        for job in self._jobs:
            with job:
                job.kill()
        self._thread.shutdown()
        self._helm.close()

    def install(self, values: dict[str, Any]) -> None:
        self._helm.install(str(CHART), "nodeagent", {"image": IMAGE, **values}, timeout=60)

    def begin_uninstall(self) -> Future[Any]:
        return self._thread.submit(self._helm.uninstall, "nodeagent", timeout=60)

    def names(self) -> set[tuple[str, str]]:
        return {
            (plural, one["metadata"]["name"])
            for plural in _MADE
            for one in self.api.store.all(plural)
            if one["metadata"].get("labels", {}).get("helm.sh/chart")
        }

    def kubeconfig_of(self, account: str) -> Path:
        """Return a kubeconfig of a ServiceAccount with the rights that the objects grant it now."""
        user = f"system:serviceaccount:{NAMESPACE}:{account}"
        granted = [one for plural in _RBAC for one in self.api.store.all(plural)]
        self.api.access.allow_only(rules_bound_to(granted, NAMESPACE, account), user)
        self.api.access.require_token(account, user)
        return self.api.write_kubeconfig(self._folder / account, account)

    def has_new_job(self) -> bool:
        return any("status" not in one for one in self.api.store.all("jobs"))

    def job_process(self) -> subprocess.Popen[str]:
        wait_until(self.has_new_job, "the Job", seconds=30)
        pod = self.api.store.get("jobs", "nodeagent-uninstall", NAMESPACE)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        text = self.api.store.get("configmaps", "nodeagent", NAMESPACE)["data"]["nodeagent.yaml"]
        (self._folder / "nodeagent.yaml").write_text(text, encoding="utf-8")
        command = [one.replace("/etc/nodeagent", str(self._folder)) for one in container["command"]]
        job = subprocess.Popen(
            [str(Path(sys.executable).with_name(command[0])), *command[1:]],
            env={"NODEAGENT_KUBECONFIG": str(self.kubeconfig_of(pod["serviceAccountName"]))},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._jobs.append(job)
        return job

    def await_deletion(self, plural: str, name: str) -> None:
        """Wait until a workload is being deleted: its pods are terminated now."""
        wait_until(
            lambda: "deletionTimestamp" in self.api.store.get(plural, name, NAMESPACE)["metadata"],
            f"the deletion of {plural}/{name}",
            seconds=30,
        )

    def let_pods_end(self, plural: str, name: str) -> None:
        """Let the last pod of a workload be deleted, as the garbage collector sees it."""
        self.api.store.patch(plural, name, NAMESPACE, {"metadata": {"finalizers": None}})

    def finish_job(self, condition: str) -> None:
        status = {"conditions": [{"type": condition, "status": "True"}]}
        self.api.store.patch("jobs", "nodeagent-uninstall", NAMESPACE, {"status": status})

    def end_well(self, job: subprocess.Popen[str], uninstalled: Future[Any]) -> None:
        """Let the pods of agents, then of relays, its Job and Helm come to a good end; nothing is left."""
        self.await_deletion("daemonsets", "nodeagent")
        relay = self.api.store.get("daemonsets", "nodeagent-relay", NAMESPACE)
        assert "deletionTimestamp" not in relay["metadata"], "agents first"
        for name in ("nodeagent", "nodeagent-relay"):
            self.await_deletion("daemonsets", name)
            self.let_pods_end("daemonsets", name)
        output, _ = job.communicate(timeout=60)
        last = "DaemonSet nodeagent/nodeagent-relay: deleted; its pods have ended"
        assert (job.returncode, last in output.splitlines()[-1]) == (0, True), output
        self.finish_job("Complete")
        uninstalled.result(timeout=60)
        assert self.names() == set()


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Cluster]:
    with ApiServer(tls=self_signed(tmp_path, "127.0.0.1")) as api:  # Helm sends no token without TLS
        api.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        found = Cluster(api, tmp_path)
        yield found
        found.close()


@pytest.mark.long
def test_a_failed_clean_up_deletes_nothing_and_can_be_repeated(release: Cluster) -> None:
    release.install({})
    before = release.names()
    done = release.begin_uninstall()
    wait_until(release.has_new_job, "the Job", seconds=30)
    release.finish_job("Failed")
    with pytest.raises(helm.HelmError, match="nodeagent-uninstall"):
        done.result(timeout=60)
    assert before <= release.names()
    assert [one["metadata"]["name"] for one in release.api.store.all("jobs")] == ["nodeagent-uninstall"]
    again = release.begin_uninstall()
    release.end_well(release.job_process(), again)


@pytest.mark.long
def test_coredns_is_cleaned_up_before_the_agents_end_which_still_have_their_rights(release: Cluster) -> None:
    """Otherwise, pods would be sent to relays that no longer run."""
    api = release.api
    cluster.fill(api)
    original = cluster.corefile(api)
    config = {"loadBalancers": {"services": [{"namespace": "ingress", "name": "controller"}]}}
    release.install({"config": config, "coredns": {"enabled": True}})
    with connect(release.kubeconfig_of("nodeagent-coredns")) as connection:
        keeper = CoreDnsReconciler(connection, ApiServers())
        assert not keeper.reconcile(read_cluster(connection, "n1"), {}, cluster.CONFIG).errors
        assert cluster.corefile(api) != original

        done = release.begin_uninstall()
        job = release.job_process()
        release.await_deletion("deployments", "nodeagent-coredns")
        assert cluster.corefile(api) != original
    release.let_pods_end("deployments", "nodeagent-coredns")
    release.await_deletion("daemonsets", "nodeagent")
    assert cluster.corefile(api) == original
    # What an agent asks when it is terminated; after a ForbiddenError it changes nothing.
    with connect(release.kubeconfig_of("nodeagent")) as connection:
        assert is_going(connection, ObjectRef("DaemonSet", NAMESPACE, "nodeagent"))
    release.end_well(job, done)
