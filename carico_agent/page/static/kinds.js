// Kinds of Pods: what one takes, how often they arrive, how many more fit.
import { amount, known, number, percent, resourceName } from "./format.js";
import { byId, fillTable, show } from "./dom.js";

const MOST_ROWS = 50;

export function showKinds(status) {
  const kinds = [...(status.kinds ?? [])].sort((a, b) => b.arrivals - a.arrivals || b.pods - a.pods || (a.kind < b.kind ? -1 : 1));
  const resources = Object.keys(status.usage ?? {});
  show(byId("kinds-none"), !kinds.length);
  const columns = [
    { title: "Kind" }, { title: "Pods" }, { title: "Fits" }, { title: "Interval" }, { title: "Limited by", text: true },
    { title: "Share of arrivals" }, ...resources.map((name) => ({ title: `One takes: ${resourceName(name)}` })),
  ];
  fillTable(byId("kinds"), columns, kinds.slice(0, MOST_ROWS).map((kind) => row(kind, resources, status.sizes)));
}

function row(kind, resources, sizes) {
  const more = known(kind.fits) ? `${Math.max(0, Math.floor(kind.fits + 1e-6))} more` : "unknown";
  const guess = kind.trusted ? "" : " (guess)";
  return [
    kind.kind,
    String(kind.pods),
    kind.daemon ? { text: "daemon", title: "Runs once on every node; it is never the next Pod." } : { text: more, kind: "strong" },
    kind.daemon ? "" : known(kind.low) && known(kind.high) ? `${number(kind.low)} to ${number(kind.high)}` : "unknown",
    kind.daemon ? "" : kind.limiting ? resourceName(kind.limiting) : "nothing",
    kind.daemon ? "" : percent(kind.arrivals),
    ...resources.map((name) => amount(name, kind.cost[name], sizes) + guess),
  ];
}
