// Workloads over all nodes: how many more fit, on how many nodes. A workload can be chosen, to see where.
import { bytes, count, known, resourceName } from "./format.js";
import { byId, el, fillTable, show } from "./dom.js";

const COLUMNS = [
  { title: "Workload" }, { title: "Pods" }, { title: "Fits" }, { title: "On nodes" }, { title: "Mostly limited by", text: true },
  { title: "One takes: CPU" }, { title: "One takes: memory" },
];

export function showClusterWorkloads(workloads, chosen, onChoose) {
  show(byId("workloads-none"), !workloads.length);
  show(byId("workloads-note"), workloads.length > 0);
  const table = byId("workloads");
  fillTable(table, COLUMNS, workloads.map(row));
  workloads.forEach((workload, i) => {
    const tr = table.tBodies[0].rows[i];
    tr.className = workload.workload === chosen ? "chosen" : "";
    button(tr.cells[0], workload.workload, workload.workload === chosen, onChoose);
  });
}

function row(workload) {
  const [cpu, memory] = workload.cost ?? [null, null];
  return [
    workload.workload,
    count(workload.pods),
    known(workload.fits) ? { text: `${count(workload.fits)} more`, tone: "strong" } : { text: "not measured", title: "No node publishes what one takes: none has run for long enough, or it is of a DaemonSet." },
    known(workload.fits_nodes) ? count(workload.fits_nodes) : "",
    workload.limiting ? resourceName(workload.limiting) : "",
    workload.cost ? (known(cpu) ? `${cpu.toFixed(2)} cores` : "unknown") : "",
    workload.cost ? bytes(memory) : "",
  ];
}

// The name as a button, made once per row and kept: focus survives an update.
function button(cell, workload, pressed, onChoose) {
  let made = cell.querySelector("button");
  if (!made || made.dataset.workload !== workload) {
    made = el("button", { type: "button", "data-workload": workload }, workload);
    made.addEventListener("click", () => onChoose(made.getAttribute("aria-pressed") === "true" ? null : workload));
    cell.replaceChildren(made);
  }
  made.setAttribute("aria-pressed", String(pressed));
}
