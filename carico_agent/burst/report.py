"""What the service knows, for /v1/burst and `carico burst status`: every Job with the reason why it is where it is."""

import time
from math import isfinite
from typing import Any

from carico_agent.burst.mover import IN_FLIGHT
from carico_agent.burst.objects import HomeJob, State
from carico_agent.burst.service import BurstService
from carico_agent.burst.site import Site
from carico_agent.burst.target import Key

NO_PRICE = "is not used: burst.prices does not have its machine in its region"


def status(service: BurstService) -> dict[str, Any]:
    """For /v1/burst and `carico burst status`."""
    now_s = time.monotonic()
    return {
        "jobs": [_job_status(service, key, job) for key, job in sorted(service.mover.jobs.items())],
        "targets": {name: _target_status(service, site, now_s) for name, site in service.sites.items()},
        "moved": service.mover.moved,
        "finished": service.mover.finished,
        "home": service.mover.home_health.condition,
    }


def _job_status(service: BurstService, key: Key, job: HomeJob) -> dict[str, Any]:
    ledger = job.ledger
    why = service.mover.reasons.get(key, "") or ledger.note
    site = service.sites.get(ledger.to)
    if ledger.state in IN_FLIGHT and site is not None and site.target.silent_since_s is not None:
        silent_s = time.monotonic() - site.target.silent_since_s
        why = (
            f"{ledger.to} does not answer for {silent_s:.0f} s: the Job is not started at home, since it may run "
            "there; if it is certain that it does not: carico burst forget --fenced"
        )
    if job.deleting and ledger.state in IN_FLIGHT:
        why = f"being deleted, its copy at {ledger.to} first. {why}".strip()
    state = job.finished or str(ledger.state)
    return {
        "namespace": key[0],
        "name": key[1],
        "state": state,
        "to": ledger.to if ledger.state != State.HOME else service.plan.moves.get(key, ""),
        "epoch": ledger.epoch,
        "why": why,
        "options": [option.__dict__ for option in service.plan.options.get(key, []) if isfinite(option.cost)],
    }


def _target_status(service: BurstService, site: Site, now_s: float) -> dict[str, Any]:
    provisioner = site.provisioner
    return {
        "answers": site.target.silent_since_s is None or site.can_be_made(),
        "condition": site.condition(now_s) or ("fine" if site.price_per_h is not None else NO_PRICE),
        "region": site.region,
        "price_per_h": site.price_per_h,
        "nodes": len(site.view.nodes),
        "copies": len(site.target.copies),
        "add": service.plan.add.get(site.target.name, 0),
        "machines": service.plan.machines.get(site.target.name, {}),
        "provisioner": None
        if provisioner is None
        else {
            "state": (provisioner.last_report if provisioner.report.state == "unknown" else provisioner.report).state,
            "nodes": provisioner.report.nodes or provisioner.last_report.nodes,
            "trouble": provisioner.trouble,
            "order": f"{provisioner.order.verb} {provisioner.order.nodes}",
            "open": provisioner.order.open,
        },
    }
