import shutil
import tarfile
from pathlib import Path

import pytest
import yaml

from nodeagent import __version__
from release import assets
from release.check import changelog_faults, changelog_section, manifest_faults, version_faults
from tests.cases import cases_of
from tests.daemonset.kustomize import DAEMONSET

_CASES = cases_of(__file__, "cases.yaml")
DIGEST = f"sha256:{'a' * 64}"
REFERENCE = f"registry.example.com:5000/team/nodeagent@{DIGEST}"


def test_the_tree_names_one_version_everywhere() -> None:
    assert list(version_faults(assets.ROOT, __version__)) == []


@pytest.mark.parametrize("file", _CASES["versions"])
def test_a_file_that_names_another_version_is_found(file: str, tmp_path: Path) -> None:
    for folder in ("nodeagent/__init__.py", "charts/nodeagent/Chart.yaml"):
        (tmp_path / folder).parent.mkdir(parents=True)
        shutil.copy(assets.ROOT / folder, tmp_path / folder)
    shutil.copytree(DAEMONSET, tmp_path / "daemonset")
    assert list(version_faults(tmp_path, __version__)) == []
    changed = (tmp_path / file).read_text("utf-8").replace(__version__, "9.9.9")
    (tmp_path / file).write_text(changed, encoding="utf-8")
    assert {fault.split(":")[0] for fault in version_faults(tmp_path, __version__)} == {file}
    (tmp_path / file).write_text("nothing\n", encoding="utf-8")
    assert any(f"{file}: names no version" in fault for fault in version_faults(tmp_path, __version__))


def test_a_version_is_semantic() -> None:
    for bad in ("v1.2.3", "1.2", "latest"):
        assert any("is not a version" in fault for fault in version_faults(assets.ROOT, bad))


_CHANGELOG = Path(__file__).with_name("changelog.md").read_text("utf-8")


def test_the_changelogs_section() -> None:
    assert changelog_section(_CHANGELOG, "1.0.0") == "### Added\n\n- All."
    assert changelog_section(_CHANGELOG, "1.1.0") == "- New."
    assert changelog_section(_CHANGELOG, "1.0") == ""
    assert list(changelog_faults(_CHANGELOG, "1.0.0")) == []
    assert "has no date but 'unreleased'" in next(changelog_faults(_CHANGELOG, "1.1.0"))
    assert "no section" in next(changelog_faults(_CHANGELOG, "1.2.0"))
    assert "is empty" in next(changelog_faults(_CHANGELOG.replace("- All.", ""), "1.0.0"))


def test_the_manifests_run_the_pinned_image(tmp_path: Path) -> None:
    manifests = assets.make_manifests(tmp_path, REFERENCE).read_text("utf-8")
    assert list(manifest_faults(manifests, __version__)) == []
    images = {line.split("image: ")[1] for line in manifests.splitlines() if "image: " in line}
    assert images == {REFERENCE}
    assert len(list(manifest_faults(manifests.replace(f"@{DIGEST}", ":latest"), __version__))) == 2


def test_the_chart_names_the_pinned_image_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk has wheels for x86-64 alone")
    monkeypatch.setenv("REPOSITORY_URL", "https://github.com/someone/nodeagent")
    archive = assets.make_chart(tmp_path, REFERENCE)
    assert archive.name == f"nodeagent-{__version__}.tgz"
    with helm.Chart.load(archive) as chart:
        (text,) = [
            text
            for path, text in chart.render({}, name="nodeagent", namespace="nodeagent").items()
            if path.endswith("templates/daemonset.yaml")
        ]
        spec = yaml.safe_load(text)["spec"]["template"]["spec"]
        assert {one["image"] for one in spec["containers"]} == {REFERENCE}
        values = {"image": {"tag": "0.2.0"}}
        rendered = chart.render(values, name="nodeagent", namespace="nodeagent")
        assert "image: registry.example.com:5000/team/nodeagent:0.2.0" in "".join(rendered.values())
    with tarfile.open(archive) as packed:
        assert all(one.isfile() for one in packed.getmembers())
        described = packed.extractfile("nodeagent/Chart.yaml")
        assert described is not None
        about = yaml.safe_load(described)
    assert "OWNER" not in str(about)
    assert about["home"] == about["sources"][0] == "https://github.com/someone/nodeagent"
    (listed,) = yaml.safe_load(about["annotations"]["artifacthub.io/images"])
    assert listed["image"] == REFERENCE


@pytest.mark.parametrize(("reference", "image"), _CASES["references"])
def test_a_reference_is_read(reference: str, image: dict[str, str]) -> None:
    text = "images:\n  - {name: nodeagent, newTag: 0.1.0}\n"
    found = yaml.safe_load(assets.pinned(text, reference))
    assert found["images"] == [{"name": "nodeagent", **image}]


@pytest.mark.parametrize("reference", ["nodeagent", "host:5000/nodeagent", "nodeagent@sha256:12", ""])
def test_a_reference_to_no_version_is_rejected(reference: str) -> None:
    with pytest.raises(ValueError, match="write it as"):
        assets.pinned("images: [{name: nodeagent, newTag: 0.1.0}]", reference)


def test_check_sums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"abc")
    assert assets.sums(tmp_path) == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
    )
