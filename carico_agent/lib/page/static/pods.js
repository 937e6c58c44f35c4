// Pods by what they use. The agent gives counters; two readings make a rate.
import { bytes, known, percent } from "./format.js";
import { byId, fillTable, setText, show } from "./dom.js";

const MAX_ROWS = 120;

export class Pods {
  #before = new Map(); // Pod → its last usage
  #rates = new Map();
  #pods = [];
  #advice = new Map(); // "namespace/name" → row of the throttling plugin
  #chosen = null; // the column the reader sorts by; until then that of the resource which runs out first
  #limiting = "cpu";

  get #sorted() {
    return this.#chosen ?? (this.#limiting === "memory" ? "memory" : "cpu");
  }

  take(pods) {
    const rates = new Map(), latest = new Map();
    for (const pod of pods) {
      const key = keyOf(pod);
      if (pod.usage) latest.set(key, pod.usage);
      const before = this.#before.get(key);
      const made = before && pod.usage ? rate(before, pod.usage) : null;
      rates.set(key, made ?? this.#rates.get(key) ?? {});
    }
    [this.#before, this.#rates, this.#pods] = [latest, rates, pods];
    this.draw();
  }

  takeStatus(status) {
    this.#limiting = status.limiting;
  }

  takeAdvice(rows) {
    this.#advice = new Map(rows.map((row) => [row.pod, row]));
    this.draw();
  }

  draw() {
    const rows = this.#pods.map((pod) => ({ pod, rate: this.#rates.get(keyOf(pod)), name: nameOf(pod) }));
    rows.sort(ORDER[this.#sorted]);
    show(byId("pods-none"), !rows.length);
    const advised = this.#advice.size > 0;
    const columns = [
      { title: "Pod", sort: "name" }, { title: "CPU", sort: "cpu" }, { title: "Memory", sort: "memory" },
      { title: "Throttled", sort: "throttled" }, { title: "Waits for CPU", sort: "waits" }, { title: "Containers" },
      ...(advised ? [{ title: "What to do about throttling", text: true }] : []),
    ];
    const cells = rows.slice(0, MAX_ROWS).map((row) => this.#cells(row, advised));
    fillTable(byId("pods"), columns, cells, (by) => { this.#chosen = by; this.draw(); }, this.#sorted);
    setText(byId("pods-most"), most(rows));
    const more = rows.length - MAX_ROWS;
    show(byId("pods-more"), more > 0);
    setText(byId("pods-more"), `and ${more} more Pods that are not shown`);
  }

  #cells({ pod, rate: now, name }, advised) {
    const throttled = now.throttled;
    const advice = this.#advice.get(name);
    return [
      pod.counts ? name : { text: `${name} (not counted)`, title: "Its namespace or name is skipped by the settings." },
      known(now.cpu) ? { text: `${now.cpu.toFixed(2)} cores`, tone: "strong" } : "measuring",
      bytes(pod.usage?.memory_current),
      known(throttled) ? { text: percent(throttled), tone: throttled > 0.25 ? "bad" : throttled > 0.05 ? "warn" : "" } : "no limit",
      known(now.waits) ? percent(now.waits) : "unknown",
      String(pod.containers.length),
      ...(advised ? [advice && advice.cause !== "none" ? `${advice.cause}: ${advice.remedy}. ${advice.text}` : ""] : []),
    ];
  }
}

// Who takes most, in words: the first thing people look for.
function most(rows) {
  const [cpu] = [...rows].sort(ORDER.cpu), [memory] = [...rows].sort(ORDER.memory);
  if (!known(cpu?.rate.cpu) || !known(memory?.pod.usage?.memory_current)) return "";
  const [busy, large] = [`${cpu.rate.cpu.toFixed(2)} cores`, bytes(memory.pod.usage.memory_current)];
  if (cpu.name === memory.name) return `${cpu.name} takes most of both: ${busy} and ${large}.`;
  return `${cpu.name} takes most CPU (${busy}), ${memory.name} most memory (${large}).`;
}

const keyOf = (pod) => `${pod.cgroup} ${pod.inode} ${pod.uid}`;
const nameOf = (pod) => (pod.namespace ? `${pod.namespace}/${pod.name}` : pod.name);
const falling = (of) => (a, b) => (of(b) ?? -1) - (of(a) ?? -1) || (a.name < b.name ? -1 : 1);
const ORDER = {
  name: (a, b) => (a.name < b.name ? -1 : 1),
  cpu: falling((row) => row.rate.cpu),
  memory: falling((row) => row.pod.usage?.memory_current),
  throttled: falling((row) => row.rate.throttled),
  waits: falling((row) => row.rate.waits),
};

// Per second between two readings; null when they are the same one or a counter began anew.
export function rate(before, after) {
  const elapsed_s = after.t - before.t;
  if (!(elapsed_s > 0.2) || after.cpu_usage_usec < before.cpu_usage_usec) return null;
  const grown = (name) => (known(after[name]) && known(before[name]) ? after[name] - before[name] : null);
  const per_s = (name) => (grown(name) === null ? null : grown(name) / 1e6 / elapsed_s);
  const periods = grown("nr_periods");
  return {
    cpu: per_s("cpu_usage_usec"),
    throttled: periods === null || (after.nr_periods === 0) ? null : periods > 0 ? grown("nr_throttled") / periods : 0,
    waits: per_s("cpu_pressure_usec"),
  };
}
