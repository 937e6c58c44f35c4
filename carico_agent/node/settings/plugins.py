"""Settings of the plugin host. A plugin's own are declared by the plugin."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from carico_agent.plugin_api.declare import Range


@dataclass(frozen=True)
class PluginsSettings:
    """Plugins look closer at Pods and, when allowed, tune their cgroups. Nothing is written unless dry_run = false."""

    enabled: tuple[str, ...] = ()
    """Names of the plugins to run; `carico plugins` lists those installed. Each has its own table below this one:
    [plugins.settings.NAME], documented in the plugin's README."""

    site_folder: str = "/etc/carico/plugins"
    """Folder with your own plugins, one folder each (plugins/template is the manual). Only root may own its content."""

    dry_run: bool = True
    """Show what would be written, and write nothing. A service that shall write also needs `carico install --systemd
    --tuning`, and is then as good as root."""

    journal: str = ""
    """File that remembers every value we replaced, so that it can be put back. Empty: the
    file journal in the state folder (see [node])."""

    tick_deadline_s: Annotated[float, Range(0.1, 60.0)] = 2.0
    """A plugin whose tick takes longer than this [s] counts as failing and is called less often."""

    write_deadline_s: Annotated[float, Range(0.1, 60.0)] = 2.0
    """A write to a cgroup that takes longer than this [s] is left to finish on its own and reported as pending."""

    rewrite_after_s: Annotated[float, Range(0.0, 3600.0)] = 10.0
    """Least time between two writes to the same file [s]; undoing harm is never delayed."""

    writes_per_minute: Annotated[int, Range(1, 10_000)] = 120
    """Most writes of all plugins together in one minute; undoing harm is not counted."""

    min_step_ratio: Annotated[float, Range(0.0, 1.0)] = 0.05
    """A number that would change by less than this share of itself is left as it is."""

    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The plugins' own settings, one table each, checked against what the plugin declares."""
