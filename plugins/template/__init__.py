"""template: the manual for writing a plugin, itself a working one. It watches memory and, if asked, asks for some back.

Copy this folder to /etc/carico/plugins/NAME (site plugin) or into a package of your own with the entry point
`carico_agent.plugins: NAME = your_package:Plugin`. Import nothing of carico but `carico_agent.plugin_api`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from carico_agent import plugin_api
from carico_agent.plugin_api import Change, Metric, Range, Refuse, View, Writer


# 1. Settings: a frozen dataclass. The string below each field is its documentation, Range its bounds. The agent does
#    not start when the table [plugins.settings.template] has an unknown key or a value that does not fit.
@dataclass(frozen=True)
class TemplateSettings:
    """Shows how a plugin is written: lists Pods above a size and can ask the kernel to free some of their memory."""

    large_bytes: Annotated[int, Range(0, 1 << 50)] = 1 << 30
    """Pods that use more memory than this [bytes] are listed."""

    reclaim_bytes: Annotated[int, Range(0, 1 << 40)] = 0
    """Ask for this much of a large Pod's memory back in each tick [bytes]. 0 = only look."""


# 2. The class is called Plugin. One object lives as long as the agent; all its methods run in one thread at a time.
class Plugin(plugin_api.Plugin):
    name: ClassVar[str] = "template"
    Settings: ClassVar[type] = TemplateSettings
    period_s: ClassVar[float] = 10.0

    def __init__(self, settings: TemplateSettings) -> None:
        super().__init__(settings)
        self._large: dict[str, int] = {}
        self._outcomes: list[str] = []

    # 3. start is called once. Say no when this node is not for you, and which knob would help.
    def start(self, view: View) -> None:
        if view.read(view.node.cgroup_root, "cgroup.controllers") is None:
            raise Refuse("no cgroup v2: boot with systemd.unified_cgroup_hierarchy=1")

    # 4. tick: look at the view, decide, ask the writer. What you remember about a Pod goes under its inode, not its
    #    path: a cgroup that died and came back under the same name is another one. Unknown is None, never 0.
    def tick(self, view: View, writer: Writer) -> None:
        large = [pod for pod in view.pods if (pod.usage.memory_current or 0) > self.settings.large_bytes]
        self._large = {pod.full_name: pod.usage.memory_current or 0 for pod in large}
        if not self.settings.reclaim_bytes:
            return
        # 5. All requests that belong together in one call; the writer orders them, keeps the journal, and may say no.
        outcomes = writer.write(
            [
                Change(
                    pod.cgroup,
                    pod.inode,
                    "memory.reclaim",
                    str(self.settings.reclaim_bytes),
                    f"uses {pod.usage.memory_current} bytes",
                )
                for pod in large
            ]
        )
        self._outcomes = [f"{o.change.cgroup}: {o.state} {o.detail}".rstrip() for o in outcomes]

    # 6. report: what /v1/plugins/template shows. metrics: numbers; the host adds the prefix and the plugin's name.
    def report(self) -> dict[str, Any]:
        return {"large": self._large, "outcomes": self._outcomes}

    def metrics(self) -> Iterable[Metric]:
        yield Metric("large_pods", len(self._large), {}, "Pods above large_bytes.")
