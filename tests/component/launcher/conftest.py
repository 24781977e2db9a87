from tests.fakes.pod import pod_directories  # noqa: F401 - a fixture
