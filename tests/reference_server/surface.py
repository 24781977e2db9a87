"""The HTTP surface: missing paths, pages below pages, and errors in the requested encoding."""

from __future__ import annotations

from typing import Final

from tests.reference_server.rows import GROUP, JSON_ALONE, OWN_PATHS, WORDS, Case, Step, delete, flunder, get, patch, post, put

YAML: Final = "application/yaml"
READS: Final = "what can be read has a head, too"
ONLY_READS: Final = "pages are read, and nothing else"
NO_OUTAGE: Final = "an outage of storage is nothing that a restart would mend"
ANOTHER_PROGRAM: Final = dict.fromkeys(
    (
        "major", "minor", "gitVersion", "gitCommit", "goVersion", "compiler", "platform",
        "only the reference: emulationMajor", "only the reference: emulationMinor",
        "only the reference: minCompatibilityMajor", "only the reference: minCompatibilityMinor",
    ),
    "another program",
)  # fmt: skip

SURFACE: Final = (
    Case(
        "surface-unknown-paths",
        (
            *(Step(method, "/nope", {}, beside=OWN_PATHS) for method in ("POST", "PUT", "PATCH", "DELETE")),
            *(Step(method, f"/apis/{GROUP}/nope", {}) for method in ("POST", "PUT", "PATCH", "DELETE")),
            *(Step(method, f"/apis/{GROUP}", {}) for method in ("POST", "PUT", "PATCH", "DELETE")),
            Step("POST", "/version", {}),
            Step("DELETE", "/apis", {}),
            Step("POST", "/", {}, differs=ONLY_READS, code=405),
            Step("POST", "/metrics", {}, differs=ONLY_READS, code=405),
            Step("HEAD", "/version", differs=READS, code=200),
            Step("HEAD", "/apis", differs=READS, code=200),
        ),
    ),
    Case(
        "surface-below-pages",
        (
            *(
                get(path, beside=OWN_PATHS)
                for path in (
                    "/metrics/",
                    "/metrics/foo",
                    "/metrics/slis/",
                    "/healthz/",
                    "/livez/",
                    "/readyz/",
                    "/livez/nope",
                    "/livez/ping/",
                    "//livez",
                    "/openapi/v2/",
                    "/openapi/v2/x",
                )
            ),
            get("/healthz/ping"),
            get("/readyz/informer-sync"),
            get("/readyz/poststarthook/generic-apiserver-start-informers"),
            get("/version/", beside=ANOTHER_PROGRAM),
            get("/livez/etcd", differs=NO_OUTAGE, code=404),
        ),
    ),
    Case(
        "surface-errors-in-yaml",
        (
            get("nope", accept=YAML),
            post(flunder(), accept=YAML),
            post(flunder(), accept=YAML),
            put("f1", flunder(metadata={"resourceVersion": "1"}), accept=YAML),
            patch("f1", {"metadata": {"finalizers": ["x"]}}, accept=YAML),
            delete("f1", {"preconditions": {"uid": "x"}}, accept=YAML),
            get("nope", accept="application/json;q=0.1,application/yaml;q=0.9"),
            get("nope", accept="application/yaml;as=Table;v=v1;g=meta.k8s.io"),
            get("nope", accept="text/html", differs=JSON_ALONE),
            get("?watch=1&timeoutSeconds=1", accept=YAML, differs=JSON_ALONE),
            get("?limit=x", accept=YAML, differs=WORDS),
            get(f"/apis/{GROUP}/nope", accept=YAML),
        ),
    ),
)
