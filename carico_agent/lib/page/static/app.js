// The node's page: connects, and hands what comes to the parts that show it.
import { Agent, Refused } from "./agent.js";
import { showAhead, showHeld } from "./ahead.js";
import { Chart } from "./chart.js";
import { explain } from "./explain.js";
import { byId, fillTable, setText, show } from "./dom.js";
import { capital, clock, known, number, percent, resourceName } from "./format.js";
import { showJobs } from "./jobs.js";
import { showWorkloads } from "./workloads.js";
import { Pods } from "./pods.js";
import { showRoom } from "./room.js";
import { showPlugins, showReservations, showSelf } from "./service.js";
import { Timeline } from "./timeline.js";
import { askForToken, onToken } from "./token.js";

const SLOW_S = 10; // everything but the status; all pages ask at the same moment and share one reading of the Pods
const agent = new Agent(), timeline = new Timeline(), pods = new Pods();
let status = null, received_ms = -Infinity;

const capacityChart = new Chart(byId("capacity-chart"), {
  name: "Pod-Capacity", least: 1, band: ["low", "high"],
  format: (value, exact) => (exact ? value.toFixed(1) : String(+value.toFixed(2))),
  series: () => [{ name: "more Pods that fit, with interval", of: (point) => point.pod_capacity }],
});
const usageChart = new Chart(byId("usage-chart"), {
  name: "Use", least: 1, format: (value) => percent(value),
  series: (line) => line.resources().map((name) => ({ name: capital(resourceName(name)), of: (point) => point.usage[name] })),
});

function showStatus(given) {
  status = given;
  received_ms = performance.now() - 1000 * given.age_s;
  setText(byId("node"), given.node);
  setText(byId("capacity"), number(given.pod_capacity));
  setText(byId("interval-text"), known(given.low) && known(given.high) ? `${number(given.low)} to ${number(given.high)}` : "unknown");
  setText(byId("mode"), given.mode);
  setText(byId("limiting"), given.limiting ? resourceName(given.limiting) : "nothing");
  setText(byId("pods-now"), String(given.pods));
  setText(byId("available"), String(given.available));
  setText(byId("sentence"), explain(given));
  document.title = `${number(given.pod_capacity)} · ${given.node} · carico`;
  showInterval(given);
  showHeld(given);
  showRoom(given);
  showWorkloads(given);
  pods.takeStatus(given);
  timeline.add(given);
  drawCharts();
  showAge();
}

function showInterval({ low, high, pod_capacity }) {
  // An interval of 1.3 to 64.2 around 4.0 would fill the bar: beyond three times the number it is cut, and fades out.
  const far = 3 * Math.max(1, pod_capacity ?? 1), wide = 1.15 * (known(high) ? high : pod_capacity ?? 1);
  const end = Math.max(1, Math.min(wide, far));
  byId("interval-range").classList.toggle("open", wide > far);
  const place = (value) => `${Math.min(100, (100 * Math.max(0, known(value) ? value : 0)) / end)}%`;
  byId("interval-range").style.left = place(low);
  byId("interval-range").style.right = `calc(100% - ${place(high)})`;
  byId("interval-point").style.left = place(pod_capacity);
}

function drawCharts() {
  capacityChart.update(timeline);
  usageChart.update(timeline);
  if (byId("capacity-details").open) {
    const rows = timeline.minutes().map((one) => [clock(one.t), number(one.pod_capacity), number(one.low), number(one.high), String(one.pods)]);
    fillTable(byId("capacity-table"), ["Time", "More Pods that fit", "At least", "At most", "Pods"].map((title) => ({ title })), rows);
  }
  if (byId("usage-details").open) {
    const names = timeline.resources();
    const rows = timeline.minutes().map((one) => [clock(one.t), ...names.map((name) => percent(one.usage[name]))]);
    fillTable(byId("usage-table"), [{ title: "Time" }, ...names.map((name) => ({ title: capital(resourceName(name)) }))], rows);
  }
}

// A number older than its TTL is void: it is greyed, and the page says why.
function showAge() {
  if (!status) return;
  const age_s = (performance.now() - received_ms) / 1000;
  const stale = age_s > status.ttl_s;
  document.body.classList.toggle("stale", stale);
  show(byId("void"), stale);
  if (stale) setText(byId("void"), `This number is ${Math.floor(age_s)} s old and no longer valid; take it for 0.`);
}

function connection(state, text) {
  byId("connection").className = `state ${state}`;
  setText(byId("connection"), text);
}

// Each question fails alone: a part that does not answer leaves its last numbers.
async function attempt(path, take) {
  try {
    take(await agent.ask(path));
  } catch (error) {
    if (!(error instanceof Refused)) console.debug(String(error));
  }
}

const fetchHistory = () => attempt(`/v1/history?after=${timeline.last_s - 30}`, (body) => { timeline.merge(body); drawCharts(); });
const fetchPods = () => attempt("/v1/pods", (body) => pods.take(body.pods));

async function fetchSlow() {
  await Promise.all([
    fetchPods(),
    attempt("/v1/progress", showJobs),
    attempt("/v1/outlook", showAhead),
    attempt("/v1/reservations", showReservations),
    attempt("/v1/self", (body) => showSelf(body, status)),
    attempt("/v1/plugins", async (body) => {
      showPlugins(body);
      if (body.plugins.some((one) => one.name === "throttling" && one.state !== "available" && one.state !== "refused"))
        await attempt("/v1/plugins/throttling", (answer) => pods.takeAdvice(answer.report?.pods ?? []));
    }),
  ]);
}

let slow_due_ms = 0;
function tick() {
  showAge();
  if (document.hidden || !byId("connection").classList.contains("live") || Date.now() < slow_due_ms) return;
  slow_due_ms = SLOW_S * 1000 * (1 + Math.floor(Date.now() / (SLOW_S * 1000)));
  fetchHistory();
  fetchSlow();
}

async function onOpen() {
  connection("live", "live");
  slow_due_ms = 0;
  await fetchHistory();
  tick();
  setTimeout(() => document.hidden || fetchPods(), 2500); // the second reading: rates without waiting for the next round
}

async function run() {
  show(byId("token-form"), false);
  try {
    await agent.watch({
      onOpen,
      onStatus: showStatus,
      onLost: (reason) => connection("lost", `connection lost (${reason}); trying again`),
    });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    connection("lost", "the token is missing or wrong");
    askForToken();
  }
}

onToken((token) => {
  agent.setToken(token);
  run();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    agent.stop(); // a page that nobody looks at costs the agent nothing
    connection("", "paused while hidden");
  } else run();
});
for (const id of ["capacity-details", "usage-details"]) byId(id).addEventListener("toggle", drawCharts);
show(byId("live"), true);
agent.takeToken();
setInterval(tick, 1000);
if (!document.hidden) run();
