// Kinds over all nodes: how many more fit, on how many nodes. A kind can be chosen, to see where.
import { bytes, count, known, resourceName } from "./format.js";
import { byId, el, fillTable, show } from "./dom.js";

const COLUMNS = [
  { title: "Kind" }, { title: "Pods" }, { title: "Fits" }, { title: "On nodes" }, { title: "Mostly limited by", text: true },
  { title: "One takes: CPU" }, { title: "One takes: memory" },
];

export function showClusterKinds(kinds, chosen, onChoose) {
  show(byId("kinds-none"), !kinds.length);
  show(byId("kinds-note"), kinds.length > 0);
  const table = byId("kinds");
  fillTable(table, COLUMNS, kinds.map(row));
  kinds.forEach((kind, i) => {
    const tr = table.tBodies[0].rows[i];
    tr.className = kind.kind === chosen ? "chosen" : "";
    button(tr.cells[0], kind.kind, kind.kind === chosen, onChoose);
  });
}

function row(kind) {
  const [cpu, memory] = kind.cost ?? [null, null];
  return [
    kind.kind,
    count(kind.pods),
    known(kind.fits) ? { text: `${count(kind.fits)} more`, kind: "strong" } : { text: "not measured", title: "No node publishes what one takes: none has run for long enough, or it is of a DaemonSet." },
    known(kind.fits_nodes) ? count(kind.fits_nodes) : "",
    kind.limiting ? resourceName(kind.limiting) : "",
    kind.cost ? (known(cpu) ? `${cpu.toFixed(2)} CPUs` : "unknown") : "",
    kind.cost ? bytes(memory) : "",
  ];
}

// The name as a button, made once per row and kept: focus survives an update.
function button(cell, kind, pressed, onChoose) {
  let made = cell.querySelector("button");
  if (!made || made.dataset.kind !== kind) {
    made = el("button", { type: "button", "data-kind": kind }, kind);
    made.addEventListener("click", () => onChoose(made.getAttribute("aria-pressed") === "true" ? null : kind));
    cell.replaceChildren(made);
  }
  made.setAttribute("aria-pressed", String(pressed));
}
