// The cluster's page: asks for all nodes every few seconds, and hands them to the parts that show them.
import { Agent, Refused } from "./agent.js";
import { byId, el, setText, show } from "./dom.js";
import { bytes, count, known, resourceName, seconds } from "./format.js";
import { Heat, describe } from "./heat.js";
import { showClusterWorkloads } from "./cluster_workloads.js";
import { Nodes } from "./nodes.js";
import { showBurst, showPlane } from "./services.js";
import { askForToken, onToken } from "./token.js";
import { VirtualTable } from "./virtual.js";

const FIRST_DELAY_MS = 400, MAX_DELAY_MS = 5000, LATE = 3; // periods without an answer until the numbers are void
const agent = new Agent(), nodes = new Nodes();
const sorted = { by: "fits", rising: false };
let body = null, received_ms = 0, chosen = null, running = null;

const table = new VirtualTable(byId("nodes-scroll"), byId("nodes"));
const heat = new Heat((i) => { byId("find").value = ""; showNodes(); table.jump(i); });

const COLUMNS = [
  { title: "Node", sort: "name" }, { title: "More that fit", sort: "fits" }, { title: "Pods", sort: "pods" },
  { title: "Starting", sort: "starting" }, { title: "CPU left", sort: "left_cpu" }, { title: "Memory left", sort: "left_memory" },
  { title: "Work left", sort: "work_s" }, { title: "Published", sort: "age_s" }, { title: "State", sort: "state" },
];

function cells(i) {
  const c = nodes.columns, fits = nodes.fits(i), state = c.state[i], limits = nodes.limiting(i);
  return [
    { text: c.name[i], title: c.name[i] },
    { text: known(fits) ? String(nodes.whole(i)) : "unknown", tone: known(fits) ? "strong" : state },
    String(c.pods[i]),
    String(c.starting?.[i] ?? "unknown"),
    known(c.left_cpu?.[i]) ? `${c.left_cpu[i].toFixed(1)} cores` : "unknown",
    bytes(c.left_memory?.[i] ?? null),
    c.work_jobs?.[i] ? `${seconds(c.work_s[i])}, ${c.work_jobs[i]} job${c.work_jobs[i] === 1 ? "" : "s"}` : "none",
    known(c.age_s[i]) ? `${seconds(c.age_s[i])} ago` : "never",
    state === "ok" ? (limits ? `${resourceName(limits)} runs out` : describe(nodes, i) === "full" ? { text: "full", tone: "bad" } : "has room")
      : { text: state === "stale" ? "expired" : "no number", tone: "warn" },
  ];
}

function showNodes() {
  const found = nodes.sorted(sorted.by, sorted.rising, byId("find").value.trim());
  table.heads(COLUMNS.map((one) => (one.sort === "fits" && nodes.workload ? { ...one, title: `More of ${nodes.workload}` } : one)), { ...sorted }, sortBy);
  table.show(found, cells);
  setText(byId("shown"), found.length === nodes.count ? `${count(nodes.count)} nodes` : `${count(found.length)} of ${count(nodes.count)} nodes`);
}

function sortBy(by) {
  sorted.rising = sorted.by === by ? !sorted.rising : ["name", "state"].includes(by);
  sorted.by = by;
  showNodes();
}

function showAnswer() {
  const sum = nodes.totals(), what = nodes.workload ? `more of ${nodes.workload} fit` : "more Pods fit";
  setText(byId("capacity"), count(sum.fits));
  setText(byId("capacity-unit"), what);
  document.title = `${sum.fits} ${what} · carico`;
  const facts = [
    ["Nodes", nodes.count], ["With room", sum.open], ["Full", sum.full], ["Number expired", sum.stale], ["No number", sum.unknown],
    ["Pods now", sum.pods], ["Starting", sum.starting], ["Work left", sum.jobs ? `${seconds(sum.work_s)} of CPU time in ${count(sum.jobs)} jobs` : "none known"],
  ].filter(([name, value]) => value || !["Number expired", "No number", "Starting"].includes(name));
  const list = byId("facts");
  list.replaceChildren(...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, typeof value === "number" ? count(value) : value))));
  setText(byId("sentence"), explain(sum));
}

function explain(sum) {
  const like = nodes.workload ? ` of ${nodes.workload}` : " like those that usually arrive on a node";
  const room = sum.open
    ? `At least one more Pod${like} fits on ${count(sum.open)} of ${count(nodes.count)} nodes; the roomiest is ${nodes.columns.name[sum.best]} with room for ${nodes.whole(sum.best)}.`
    : `No node has room for another Pod${like}.`;
  const full = sum.full ? ` ${count(sum.full)} ${sum.full === 1 ? "is" : "are"} full.` : "";
  const stale = sum.stale ? ` ${count(sum.stale)} ${sum.stale === 1 ? "has" : "have"} not published in time, so nothing is counted there.` : "";
  const unknown = sum.unknown ? ` ${count(sum.unknown)} ${sum.unknown === 1 ? "publishes" : "publish"} no number${nodes.workload ? " for this workload" : ": no agent runs there, or it does not write to the cluster"}.` : "";
  return room + full + stale + unknown + (nodes.workload ? "" : " Only whole Pods are added up: half a place on each of two nodes is no place.");
}

function draw() {
  showAnswer();
  heat.update(nodes);
  showNodes();
  showClusterWorkloads(body.workloads, nodes.workload, choose);
  show(byId("all-workloads"), chosen !== null);
  showPlane(body.plane);
  showBurst(body.burst);
}

async function choose(workload) {
  chosen = workload;
  try {
    nodes.choose(workload === null ? null : await where(workload));
  } catch (error) {
    if (error instanceof Refused) throw error;
    chosen = null;
    nodes.choose(null);
  }
  if (workload !== null) Object.assign(sorted, { by: "fits", rising: false });
  draw();
}

const where = (workload) => agent.ask(`/v1/cluster/workloads/${workload.split("/").map(encodeURIComponent).join("/")}`);

async function fetchAll() {
  const given = await agent.ask("/v1/cluster");
  if (chosen !== null) nodes.choose(await where(chosen));
  body = given;
  received_ms = performance.now();
  nodes.take(given.nodes);
  draw();
}

function connection(state, text) {
  byId("connection").className = `state ${state}`;
  setText(byId("connection"), text);
}

// Numbers that nobody renews are greyed, and the page says why.
function showAge() {
  if (!body) return;
  const age_s = (performance.now() - received_ms) / 1000, stale = age_s > LATE * body.next_s + 5;
  document.body.classList.toggle("stale", stale);
  show(byId("void"), stale);
  if (stale) setText(byId("void"), `These numbers are ${Math.floor(age_s)} s old.`);
}

async function run() {
  const stop = new AbortController();
  running?.abort();
  running = stop;
  show(byId("token-form"), false);
  let delay_ms = FIRST_DELAY_MS;
  while (!stop.signal.aborted) {
    let pause_ms;
    try {
      await fetchAll();
      const trouble = body.condition && !/^in step|^$/.test(body.condition) ? `live, but ${body.condition}` : "live";
      connection(trouble === "live" ? "live" : "lost", trouble);
      pause_ms = 1000 * body.next_s;
      delay_ms = FIRST_DELAY_MS;
    } catch (error) {
      if (error instanceof Refused) return refused();
      connection("lost", "connection lost; trying again");
      pause_ms = delay_ms;
      delay_ms = Math.min(2 * delay_ms, MAX_DELAY_MS);
    }
    await new Promise((resolve) => { setTimeout(resolve, pause_ms); stop.signal.addEventListener("abort", resolve, { once: true }); });
  }
}

function refused() {
  connection("lost", "the token is missing or wrong");
  askForToken();
}

onToken((token) => {
  agent.setToken(token);
  run();
});
byId("find").addEventListener("input", showNodes);
byId("all-workloads").addEventListener("click", () => { byId("find").focus(); choose(null); });
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    running?.abort(); // a page that nobody looks at costs nothing
    connection("", "paused while hidden");
  } else run();
});
show(byId("live"), true);
agent.takeToken();
setInterval(showAge, 1000);
if (!document.hidden) run();
