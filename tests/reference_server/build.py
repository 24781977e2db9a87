"""``python -m tests.reference_server.build`` builds the reference server, and prints its path."""

import sys

from tests.testbed import build, progress

KUBERNETES = "0.36.3"
_VERSION = "k8s.io/component-base/version"
SAMPLE_APISERVER = build.GoProgram(
    "sample-apiserver",
    KUBERNETES,
    ("k8s.io/sample-apiserver",),
    linker_flags=f"-X {_VERSION}.gitVersion=v1.36.3 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36",
    module="tests/reference_server/go/sample-apiserver",
)


def main() -> int:
    try:
        print(SAMPLE_APISERVER.binary())
    except progress.StepFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
