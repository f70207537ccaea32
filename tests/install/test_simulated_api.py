"""Who may leave out the simulated API's own tests: anyone who did not change it."""

from tests.apiserver.tested import RECORD, digest


def test_the_simulated_api_is_the_one_that_its_own_tests_passed_on() -> None:
    assert RECORD.read_text("ascii").strip() == digest(), (
        f"tests/apiserver was changed: run `make test-apiserver` and commit {RECORD.name}"
    )
