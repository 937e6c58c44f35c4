// Reservations, plugins and the agent's own cost.
import { bytes, known, percent, seconds } from "./format.js";
import { byId, el, fillTable, show } from "./dom.js";

export function showReservations(body) {
  const rows = body.reservations.map((one) => [one.holder || "unnamed", String(one.pods), seconds(one.expires_in_s)]);
  show(byId("reservations-none"), !rows.length);
  fillTable(byId("reservations"), [{ title: "Holder" }, { title: "Pods" }, { title: "Ends in" }], rows);
}

export function showPlugins(body) {
  const running = body.plugins.filter((one) => one.state !== "available");
  show(byId("plugins-none"), !running.length);
  const rows = running.map((one) => [
    one.name,
    { text: one.state, tone: ["failing", "refused"].includes(one.state) ? "bad" : "" },
    one.detail || (body.dry_run ? "dry run: shows what it would write" : ""),
  ]);
  fillTable(byId("plugins"), [{ title: "Plugin" }, { title: "State" }, { title: "Detail", text: true }], rows);
  const deeds = [...body.recent].reverse().slice(0, 20).map((one) => [
    one.plugin, `${one.cgroup.split("/").pop()} ${one.key}`, `${one.old ?? "?"} → ${one.new}`,
    { text: one.state, tone: ["failed", "refused"].includes(one.state) ? "bad" : "", title: one.detail },
  ]);
  show(byId("deeds-title"), deeds.length > 0);
  const columns = [{ title: "Plugin" }, { title: "File", text: true }, { title: "Change", text: true }, { title: "State" }];
  fillTable(byId("deeds"), columns, deeds);
}

export function showSelf(own, status) {
  const facts = [
    ["CPU", `${percent(own.cpu_ratio)} of a core`],
    ["Memory", bytes(own.resident_bytes)],
    ["Reads the kernel", known(own.sampling?.period_s) ? `every ${own.sampling.period_s} s` : "replays a trace"],
    ["Ticks missed", `${own.missed_ticks} of ${own.ticks}`],
    ["Tick lateness", `${own.lateness_ms.p99} ms (99 %)`],
  ];
  byId("self").replaceChildren(...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  const failing = Object.entries(own.tasks).filter(([, task]) => task.state === "failing");
  const lines = [
    ...(own.sampling?.slowed ? [["", `samples less often: ${own.sampling.slowed}`]] : []),
    ["", `containers: ${own.runtime}`],
    ...(status?.federation?.condition ? [["", `other nodes: ${status.federation.condition}`]] : []),
    ...Object.entries(own.absent).map(([name, why]) => ["", `${name} is missing: ${why}`]),
    ...failing.map(([name, task]) => ["bad", `${name} fails: ${task.last_error}`]),
  ];
  byId("parts").replaceChildren(...lines.map(([tone, text]) => el("li", { class: tone }, text)));
}
