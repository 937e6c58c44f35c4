// The last 15 minutes as points: from /v1/history when the page opens or was away, then one per status.

const SPAN_S = 900;
const SPANS_S = [120, 300, SPAN_S]; // of the charts: an agent that has just started fills them, too

export class Timeline {
  points = []; // {t, pod_capacity, low, high, pods, usage: {resource: share}}
  events = []; // {time_s, what, pod}

  get last_s() {
    return this.points.at(-1)?.t ?? 0;
  }

  // How much time the charts show: the least that holds all points.
  get span_s() {
    const seen_s = this.last_s - (this.points[0]?.t ?? this.last_s);
    return SPANS_S.find((span_s) => seen_s <= span_s) ?? SPAN_S;
  }

  // Rows of /v1/history. What is older than they stays: after a restart the agent's own history is empty.
  merge(history) {
    const rows = history.time_s.map((t, row) => ({
      t,
      pod_capacity: history.pod_capacity[row], low: history.low[row], high: history.high[row], pods: history.pods[row],
      usage: Object.fromEntries(Object.entries(history.usage).map(([name, values]) => [name, values[row]])),
    }));
    const first_s = rows[0]?.t ?? Infinity, last_s = rows.at(-1)?.t ?? 0;
    const before = this.points.filter((point) => point.t < first_s);
    const after = rows.length ? this.points.filter((point) => point.t > last_s + 0.5) : this.points.slice(before.length);
    this.points = [...before, ...rows, ...after];
    this.addEvents(history.events);
    this.#trim();
  }

  add(status) {
    const t = Date.parse(status.time) / 1000;
    const { pod_capacity, low, high, pods, usage } = status;
    while (this.points.length && this.points.at(-1).t > t - 0.5) this.points.pop(); // several updates in one second
    this.points.push({ t, pod_capacity, low, high, pods, usage });
    this.#trim();
  }

  addEvents(events) {
    const seen = new Set(this.events.map(key));
    this.events.push(...events.filter((event) => !seen.has(key(event))));
  }

  resources() {
    return Object.keys(this.points.at(-1)?.usage ?? {});
  }

  // One point per minute, newest first, for the tables behind the charts.
  minutes() {
    const rows = [];
    for (let i = this.points.length - 1; i >= 0; i--)
      if (!rows.length || rows.at(-1).t - this.points[i].t >= 60) rows.push(this.points[i]);
    return rows;
  }

  #trim() {
    const oldest_s = this.last_s - SPAN_S;
    const keep = this.points.findIndex((point) => point.t >= oldest_s);
    if (keep > 0) this.points.splice(0, keep);
    this.events = this.events.filter((event) => event.time_s >= oldest_s).slice(-900);
  }
}

const key = (event) => `${event.time_s} ${event.what} ${event.pod}`;
