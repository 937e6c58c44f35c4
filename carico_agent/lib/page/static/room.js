// Who uses what: a stacked bar per resource, from the host over the workloads to what is free.
import { amount, known, percent, resourceName, capital } from "./format.js";
import { byId, el, fillTable, setText } from "./dom.js";

const KEPT = "kept free";
const MAX_WORKLOADS = 6; // colours that can be distinguished; what is beyond them is one part

export function showRoom(status) {
  const names = topWorkloads(status);
  const resources = Object.keys(status.usage ?? {});
  const stacks = resources.map((resource) => ({ resource, parts: stack(status, resource, names) }));
  const parent = byId("room");
  if (parent.children.length !== stacks.length) parent.replaceChildren(...stacks.map(emptyRow));
  stacks.forEach((one, i) => fillRow(parent.children[i], one, status));
  legend(stacks);
  table(stacks, status);
  note(status, stacks);
}

// Why a node with 8 cores has more than 8 CPUs to give: the number would puzzle without it.
function note(status, stacks) {
  const size = status.sizes?.cpu;
  const limit = status.limits?.cpu ?? 1;
  const cpu = known(size) ? `This node has ${+(size / 2).toFixed(1)} cores. Its CPU counts as full when ${+(limit * size).toFixed(1)} are wanted: ${+(2 * limit).toFixed(2)} runnable threads per core. ` : "";
  const measured = status.pods_measured ? "" : "Pods are not measured one by one yet, so all use is one part.";
  const kept = stacks.flatMap(({ resource, parts }) => parts.filter((part) => part.tone === "over" && part.share > 0.02).map((part) =>
    `${percent(part.share)} of the ${resourceName(resource)} is ${part.name}: ` +
    (part.name === KEPT ? "it counts as full before its end. " : "it is in use, and no workload or host process is known to take it. ")));
  setText(byId("room-note"), cpu + kept.join("") + measured);
}

// The workloads that take most of any resource, each at its place, which is its colour; the others share one part. A workload
// keeps its place while it runs: colours that change every second say nothing.
const places = new Array(MAX_WORKLOADS).fill(null);
function topWorkloads(status) {
  const weight = (workload) => Math.max(0, ...Object.values(workload.cost).filter(known)) * workload.pods;
  const running = (status.workloads ?? []).filter((workload) => workload.pods > 0).sort((a, b) => weight(b) - weight(a));
  const names = running.map((workload) => workload.workload);
  places.forEach((name, place) => { if (!names.includes(name)) places[place] = null; });
  for (const name of names) {
    if (!places.includes(null)) break;
    if (!places.includes(name)) places[places.indexOf(null)] = name;
  }
  return places;
}

export function stack(status, resource, names) {
  const cost = status.cost_vector?.[resource];
  const part = (name, tone, share) => ({ name, tone, share: Math.max(0, known(share) ? share : 0) });
  const held = status.reserved && known(cost) ? status.reserved * cost : 0;
  if (!status.pods_measured || !known(status.room?.[resource])) {
    const used = status.usage?.[resource] ?? 0;
    const free = Math.max(0, 1 - used);
    return [part("used", "used", used), part("reserved", "reserved", Math.min(held, free)), part("free", "free", free - held)];
  }
  const parts = [part("host", "host", status.host?.[resource])];
  let others = 0;
  for (const workload of status.workloads ?? []) {
    const share = workload.pods * (workload.cost[resource] ?? 0);
    const place = names.indexOf(workload.workload);
    if (place < 0) others += Math.max(0, share);
    else parts.push({ ...part(workload.workload, String(place), share), place });
  }
  parts.sort((a, b) => (a.place ?? -1) - (b.place ?? -1));
  if (others > 0) parts.push(part("other workloads", "6", others));
  const free = Math.max(0, status.room[resource]);
  parts.push(part("reserved", "reserved", Math.min(held, free)), part("free", "free", free - held));
  const sum = parts.reduce((total, one) => total + one.share, 0);
  const kept = Math.min(1 - sum, 1 - (status.limits?.[resource] ?? 1));
  if (kept > 0) parts.push(part(KEPT, "over", kept));
  if (1 - sum - kept > 1e-6) parts.push(part("not attributed", "over", 1 - sum - Math.max(0, kept)));
  return parts;
}

function emptyRow() {
  return el("div", { class: "bar-row" },
    el("div", { class: "bar-head" }, el("span"), el("span", { class: "soft" })),
    el("div", { class: "bar", role: "img" }));
}

function fillRow(row, { resource, parts }, status) {
  const [head, bar] = row.children;
  const left = parts.filter((part) => ["free", "reserved"].includes(part.tone)).reduce((sum, part) => sum + part.share, 0);
  const limits = status.limiting === resource;
  setText(head.children[0], capital(resourceName(resource)) + (limits ? " – runs out first" : ""));
  head.children[0].className = limits ? "limits" : "";
  setText(head.children[1], `${amount(resource, left, status.sizes)} left (${percent(left)})`);
  const shown = parts.filter((part) => part.share > 0);
  bar.setAttribute("aria-label", shown.map((part) => `${part.name} ${percent(part.share)}`).join(", "));
  while (bar.children.length > shown.length) bar.lastElementChild.remove();
  const sum = Math.max(1, shown.reduce((total, part) => total + part.share, 0));
  shown.forEach((part, i) => {
    const piece = bar.children[i] ?? bar.appendChild(el("span"));
    piece.className = `c-${part.tone}`;
    piece.style.width = `${(100 * part.share) / sum}%`;
    piece.title = `${part.name}: ${amount(resource, part.share, status.sizes)} (${percent(part.share)})`;
  });
}

function merged(stacks) {
  const names = new Map();
  for (const { parts } of stacks)
    for (const part of parts) if (part.share > 0) names.set(part.name, part.tone);
  const order = ["host", "used", "0", "1", "2", "3", "4", "5", "6", "reserved", "free", "over"];
  return [...names].sort((a, b) => order.indexOf(a[1]) - order.indexOf(b[1]));
}

function legend(stacks) {
  const list = byId("room-legend"), names = merged(stacks);
  const signature = JSON.stringify(names);
  if (list.dataset.names === signature) return;
  list.dataset.names = signature;
  list.replaceChildren(...names.map(([name, tone]) => el("li", {}, el("i", { class: `c-${tone}` }), name)));
}

function table(stacks, status) {
  const columns = [{ title: "Who" }, ...stacks.map((one) => ({ title: capital(resourceName(one.resource)) }))];
  const rows = merged(stacks).map(([name]) => [name, ...stacks.map(({ resource, parts }) => {
    const share = parts.find((part) => part.name === name)?.share ?? 0;
    return `${amount(resource, share, status.sizes)} (${percent(share)})`;
  })]);
  fillTable(byId("room-table"), columns, rows);
}
