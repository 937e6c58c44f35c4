// Workloads: what one takes, how often they arrive, how many more fit.
import { amount, known, number, percent, resourceName } from "./format.js";
import { byId, fillTable, show } from "./dom.js";

const MAX_ROWS = 50;

export function showWorkloads(status) {
  const workloads = [...(status.workloads ?? [])].sort((a, b) => b.arrivals - a.arrivals || b.pods - a.pods || (a.workload < b.workload ? -1 : 1));
  const resources = Object.keys(status.usage ?? {});
  show(byId("workloads-none"), !workloads.length);
  const columns = [
    { title: "Workload" }, { title: "Pods" }, { title: "Fits" }, { title: "Interval" }, { title: "Limited by", text: true },
    { title: "Share of arrivals" }, ...resources.map((name) => ({ title: `One takes: ${resourceName(name)}` })),
  ];
  fillTable(byId("workloads"), columns, workloads.slice(0, MAX_ROWS).map((workload) => row(workload, resources, status.sizes)));
}

function row(workload, resources, sizes) {
  const more = known(workload.fits) ? `${Math.max(0, Math.floor(workload.fits + 1e-6))} more` : "unknown";
  const guess = workload.trusted ? "" : " (guess)";
  return [
    workload.workload,
    String(workload.pods),
    workload.per_node ? { text: "per node", title: "Runs once on every node; it is never the next Pod." } : { text: more, tone: "strong" },
    workload.per_node ? "" : known(workload.low) && known(workload.high) ? `${number(workload.low)} to ${number(workload.high)}` : "unknown",
    workload.per_node ? "" : workload.limiting ? resourceName(workload.limiting) : "nothing",
    workload.per_node ? "" : percent(workload.arrivals),
    ...resources.map((name) => amount(name, workload.cost[name], sizes) + guess),
  ];
}
