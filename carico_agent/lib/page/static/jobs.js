// Jobs that report how far they are.
import { known, percent, seconds } from "./format.js";
import { byId, el, fillTable, setText, show } from "./dom.js";

const MAX_ROWS = 120;
const COLUMNS = [
  { title: "Job" }, { title: "Progress", text: true }, { title: "Done" }, { title: "CPU time left" }, { title: "Ends in" }, { title: "Known from", text: true },
];

export function showJobs(body) {
  const jobs = [...body.jobs].sort((a, b) => (a.left_cpu_s ?? Infinity) - (b.left_cpu_s ?? Infinity));
  const shown = jobs.slice(0, MAX_ROWS), table = byId("jobs");
  show(byId("jobs-none"), !jobs.length);
  fillTable(table, COLUMNS, shown.map(row));
  shown.forEach((job, i) => fillBar(table.tBodies[0].rows[i].cells[1], job));
  const left_s = jobs.reduce((sum, job) => sum + (job.left_cpu_s ?? 0), 0);
  const more = jobs.length > MAX_ROWS ? ` ${jobs.length - MAX_ROWS} more are not shown.` : "";
  setText(byId("jobs-sum"), jobs.length ? `All of them together need ${seconds(left_s)} of CPU time to finish; the one with least left stands first.${more}` : "");
}

function row(job) {
  return [
    job.namespace ? `${job.namespace}/${job.name}` : job.name,
    "",
    known(job.ratio) ? { text: `${percent(job.ratio)}`, title: `${job.done} of ${job.total}` } : "unknown",
    seconds(job.left_cpu_s),
    seconds(job.left_s),
    job.stale ? { text: `silent for ${seconds(job.age_s)}`, tone: "warn" }
      : job.uncertain ? "its first reports" : "its reports",
  ];
}

// A progress element, made once per row and kept.
function fillBar(cell, job) {
  const bar = cell.querySelector("progress") ?? cell.appendChild(el("progress", { max: "1" }));
  show(bar, known(job.ratio));
  bar.value = known(job.ratio) ? job.ratio : 0;
  bar.setAttribute("aria-label", `Progress of ${job.name}`);
}
