// Every node of the cluster out of the columns of /v1/cluster: what fits, totals, and the order by a column.

export const STEPS = [ // of the heat strip and its legend: how many more Pods fit
  { name: "full", from: 0 }, { name: "1", from: 1 }, { name: "2 to 4", from: 2 }, { name: "5 to 9", from: 5 },
  { name: "10 or more", from: 10 },
];

export class Nodes {
  columns = { name: [] };
  byName = [];   // indices in the order of names
  #keys = [];
  #workload = null;  // {workload, fits: Map, limiting: Map} of the chosen workload

  take(columns) {
    this.columns = columns;
    this.#keys = columns.name.map(naturalKey);
    this.byName = order(columns.name.length, (i) => this.#keys[i], true);
  }

  choose(answer) {
    if (!answer) this.#workload = null;
    else {
      const at = new Map(answer.name.map((name, i) => [name, i]));
      const limiting = (i) => (answer.limiting?.[i] ?? null) === null ? "" : answer.resources[answer.limiting[i]];
      this.#workload = { workload: answer.workload, at, fits: answer.fits, limiting };
    }
  }

  get count() {
    return this.columns.name.length;
  }

  get workload() {
    return this.#workload?.workload ?? null;
  }

  // How many more fit on a node, of the chosen workload if there is one; null when nothing valid is known.
  fits(i) {
    if (this.columns.state[i] !== "ok") return null;
    if (!this.#workload) return this.columns.fits[i];
    const at = this.#workload.at.get(this.columns.name[i]);
    return at === undefined ? null : this.#workload.fits?.[at] ?? null;
  }

  limiting(i) {
    const at = this.#workload?.at.get(this.columns.name[i]);
    return at === undefined ? "" : this.#workload.limiting(at);
  }

  whole(i) {
    return Math.floor((this.fits(i) ?? 0) + 1e-6);
  }

  // "0" to "4" as STEPS, "stale" or "unknown".
  step(i) {
    if (this.columns.state[i] === "stale") return "stale";
    if (this.fits(i) === null) return "unknown";
    const whole = this.whole(i);
    let step = 0;
    while (step + 1 < STEPS.length && whole >= STEPS[step + 1].from) step += 1;
    return String(step);
  }

  totals() {
    const sum = { fits: 0, open: 0, full: 0, stale: 0, unknown: 0, pods: 0, starting: 0, jobs: 0, work_s: 0, best: -1 };
    for (let i = 0; i < this.count; i++) {
      const step = this.step(i), whole = this.whole(i);
      sum.pods += this.columns.pods[i];
      sum.starting += this.columns.starting?.[i] ?? 0;
      if (step === "stale" || step === "unknown") { sum[step] += 1; continue; }
      sum.jobs += this.columns.work_jobs?.[i] ?? 0;
      sum.work_s += this.columns.work_s?.[i] ?? 0;
      sum.fits += whole;
      sum[whole >= 1 ? "open" : "full"] += 1;
      if (whole >= 1 && (sum.best < 0 || whole > this.whole(sum.best))) sum.best = i;
    }
    return sum;
  }

  // Indices of the nodes whose name has `find` in it, in the order of a column. What is unknown comes last either way.
  sorted(by, rising, find) {
    const of = { name: (i) => this.#keys[i], fits: (i) => this.fits(i), state: (i) => this.columns.state[i] }[by] ?? ((i) => this.columns[by]?.[i] ?? null);
    const found = order(this.count, of, rising, this.byName);
    const needle = find.toLowerCase();
    return needle ? found.filter((i) => this.columns.name[i].toLowerCase().includes(needle)) : found;
  }
}

// node-10 after node-9: digits are padded, so that plain comparison of strings does it (a Collator takes ten times as long).
const naturalKey = (name) => name.replace(/\d+/g, (digits) => digits.padStart(12, "0"));

function order(count, of, rising, from = null) {
  const indices = from ? from.slice() : Array.from({ length: count }, (_, i) => i);
  const values = Array.from({ length: count }, (_, i) => of(i));
  const sign = rising ? 1 : -1;
  return indices.sort((a, b) => {
    const x = values[a], y = values[b];
    if (x === null || y === null) return (x === null) - (y === null);
    return x < y ? -sign : x > y ? sign : 0;
  });
}
