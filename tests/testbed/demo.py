"""``make demo``: from a fresh machine to a guest with a usable console; ``make down`` undoes it.

With ``KUBECONFIG`` set, the chart and the demo's objects go to the user's cluster, without images, because only the user knows the nodes'
registry (docs/development/testbed.md).
"""

import time
from concurrent import futures

from tests.testbed import (
    build,
    cloud_demo,
    cluster,
    console,
    estimate,
    images,
    installing,
    kubectl,
    layout,
    packages,
    plugin,
    progress,
    project_images,
    release,
)

MACHINE = "testvm"
_EXAMPLES = layout.REPOSITORY / "examples" / "slides"
_PROMPT = r"testguest:\S*# "
_PROGRAMS = ("etcd", "kubernetes", "containerd", "coredns", "pause")  # in this order: ``make check`` waits for etcd
_CHART = "Install charts/kubevirt"
_CREATE = "Create the virtual machine of examples/slides, and a disk for it"
_RUNNING = f"Wait until {MACHINE} is Running"
_CONSOLE = "Wait for the prompt of the guest on its serial console"


def up() -> None:
    began = time.monotonic()
    own, cloud = kubectl.is_own_cluster(), cloud_demo.is_wanted()
    with progress.expecting(_expected(own=own) | (cloud_demo.expected(own=own) if cloud else {})):
        _do(own=own)
        if cloud:
            cloud_demo.up(own=own)
    _show(time.monotonic() - began, cloud_demo.to_type() if cloud else "")


def _do(*, own: bool) -> None:
    if own:
        packages.install()
        prepare()
        cluster.up()
        cluster.load_images()
    else:
        progress.say(f"  ▸ using the cluster of KUBECONFIG={kubectl.environment()['KUBECONFIG']}")
        plugin.program()
    with progress.step(_CHART):
        release.install_current()
    with progress.step(_CREATE):
        _create_machine(own=own)
    with progress.step(_RUNNING):
        _wait_until_running()
    with progress.step(_CONSOLE):
        console.wait_for(MACHINE, _PROMPT)


def _expected(*, own: bool) -> dict[str, float]:
    """Return the recorded seconds of the steps that must still run, by title. ``own``: of our cluster, so also builds, unless cached."""
    recorded = estimate.SECONDS
    steps = {_CHART: recorded["chart"], _CREATE: recorded["machine"], _RUNNING: recorded["running"], _CONSOLE: recorded["prompt"]}
    if not plugin.packages_path().exists():
        steps |= {plugin.TITLE: recorded["plugin"], installing.TITLE: recorded["uv"]}
    if not own:
        return steps
    if missing := packages.missing():
        steps[packages.title(missing)] = recorded["packages"]
    steps |= {build.title(tool): recorded[tool] for tool in (*_PROGRAMS, "helm") if not build.directory_of(tool).exists()}
    if not project_images.base_archive_path().exists():
        steps[project_images.BASE_TITLE] = recorded["base"]
    for process in project_images.PROCESSES:
        if process.extra is not None and not project_images.wheels_path(process).exists():
            steps[project_images.wheels_title(process)] = recorded["wheels"]
    for name in project_images.NAMES:
        lowest, *upper = project_images.image_of(name).chain
        if not images.is_built(lowest):
            steps[images.title(lowest)] = recorded["image-etcd" if name == "etcd" else name]
        if upper and not images.is_built(upper[-1]):
            steps[images.title(upper[-1])] = recorded["source"]
    return steps


def prepare() -> None:
    """Build images, and programs one by one: two at once would compile common packages twice."""
    with futures.ThreadPoolExecutor(2) as pool:
        for done in futures.as_completed([pool.submit(_build_programs), pool.submit(_prepare_the_others)]):
            done.result()


def _build_programs() -> None:
    for tool in _PROGRAMS:
        build.ensure(tool)


def _prepare_the_others() -> None:
    plugin.program()
    build.ensure("helm")
    images.ensure(project_images.all_images())


def _create_machine(*, own: bool) -> None:
    volume = (_EXAMPLES / "volume.yaml").read_text()
    if not own:
        volume = volume.replace("  storageClassName: shared\n", "")
    kubectl.apply(volume)
    kubectl.run("wait", "--for=condition=Complete", "job/fill-myvolumeclaim", "--timeout=120s")
    kubectl.run("apply", "--filename", str(_EXAMPLES / "virtualmachine.yaml"))


def _wait_until_running(seconds: int = 120) -> None:
    try:
        kubectl.run("wait", f"virtualmachine/{MACHINE}", "--for=jsonpath={.status.phase}=Running", f"--timeout={seconds}s")
    except progress.StepFailed as error:
        described = kubectl.output("describe", "virtualmachine", MACHINE)
        raise progress.StepFailed(f"{MACHINE} is not Running:\n{described}") from error


def _show(seconds: float, more: str) -> None:
    progress.say("")
    kubectl.show("get", "vms", "-o", "wide")
    progress.say("")
    kubectl.show("get", "pods", "--all-namespaces", "-o", "wide")
    progress.say(f"""
All of it took {seconds:.0f} s. What to type next:

  eval "$(make env)"                       # KUBECONFIG, kubectl and its plugin, for this shell
  kubectl virt console {MACHINE}              # Enter for a prompt, Ctrl-] leaves
  kubectl virt migrate {MACHINE}              # to any other node; {_EXAMPLES.relative_to(layout.REPOSITORY)}/migration.yaml names one
  kubectl get migrations -w
  kubectl get vms -o wide
  kubectl delete vm {MACHINE}
{more}
  make down                                # takes everything away again""")


def shell_variables() -> str:
    directories = [str(plugin.program().parent), str(build.directory_of("kubernetes")), str(build.directory_of("helm"))]
    return f'export KUBECONFIG="{kubectl.environment()["KUBECONFIG"]}"\nexport PATH="{":".join(directories)}:$PATH"'


def down() -> None:
    if kubectl.is_own_cluster():
        cluster.down()
        return
    with progress.step("Delete the demo's objects and the release"):
        if release.is_installed():
            kubectl.run("delete", "--ignore-not-found", "--timeout=120s", "--filename", str(_EXAMPLES / "virtualmachine.yaml"))
            cloud_demo.down()
        kubectl.run("delete", "--ignore-not-found", "--timeout=120s", "--filename", str(_EXAMPLES / "volume.yaml"))
        release.uninstall()
