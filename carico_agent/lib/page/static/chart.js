// A line chart over the last minutes as SVG: lines, a band, marks of container events, a cursor for pointer and keys.
import { clock, known } from "./format.js";
import { el, svg } from "./dom.js";

const HEIGHT = 190, LEFT = 44, RIGHT = 8, TOP = 16, BOTTOM = 22;
const GAP_S = 5; // a line is not drawn across a gap: nothing is known of that time
const SIGNS = { start: "▲", exit: "▽", oom: "✕" };

export class Chart {
  // name: for the label; format(value): of the axis; series: points → [{name, of}], `of` takes a point.
  constructor(parent, { name, format, least, band = null, series }) {
    Object.assign(this, { name, format, least, band, series });
    this.svg = svg("svg", { role: "img", tabindex: "0", preserveAspectRatio: "none" });
    this.legend = el("ul", { class: "legend" });
    this.readout = el("p", { class: "readout", role: "status", "aria-live": "off" });
    parent.replaceChildren(this.svg, this.readout, this.legend);
    this.cursor_s = null;
    this.svg.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.#move(null));
    this.svg.addEventListener("blur", () => this.#move(null));
    this.svg.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(parent);
  }

  update(timeline) {
    this.timeline = timeline;
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth;
    if (!this.timeline?.points.length || !width) return;
    const { points, last_s, span_s } = this.timeline;
    this.width = width;
    this.x = (t) => LEFT + (width - LEFT - RIGHT) * (1 - (last_s - t) / span_s);
    const lines = this.series(this.timeline);
    const top = ceiling(Math.max(this.least, this.#highest(points, lines)));
    this.y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(Math.max(value, 0), top) / top);
    const parts = [...this.#grid(top), ...this.#marks()];
    if (this.band) parts.push(...this.#interval(points, top));
    lines.forEach((line, i) => parts.push(svg("path", { class: `line l-${i}`, d: this.#line(points, line.of) })));
    parts.push(...this.#cursor());
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts);
    this.#describe(points, lines);
  }

  // The band counts up to twice the lines: a first guess may reach from 1 to 110, and the line must still be seen.
  #highest(points, lines) {
    const highest = (values) => values.reduce((most, value) => (known(value) && value > most ? value : most), 0);
    const line = highest(points.flatMap((point) => lines.map((one) => one.of(point))));
    if (!this.band) return line;
    return Math.max(line, Math.min(highest(points.map((point) => point[this.band[1]])), 2 * line));
  }

  #grid(top) {
    const parts = [], { last_s, span_s } = this.timeline, minutes = span_s / 60;
    for (let i = 0; i <= 4; i++) {
      const value = (top * i) / 4, y = this.y(value);
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }));
      parts.push(svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.format(value)));
    }
    for (let minute = 0; minute <= minutes; minute += minutes > 5 ? 5 : 1) {
      const anchor = minute === 0 ? "end" : minute === minutes ? "start" : "middle";
      const text = minute === 0 ? "now" : `${minute} min${this.width < 480 ? "" : " ago"}`;
      parts.push(svg("text", { x: this.x(last_s - 60 * minute), y: HEIGHT - 5, "text-anchor": anchor }, text));
    }
    return parts;
  }

  #marks() {
    const parts = [];
    let sign_x = -100;
    for (const event of this.timeline.events) {
      const x = this.x(event.time_s);
      if (x < LEFT) continue;
      const tone = event.what === "oom" ? " mark-oom" : "";
      parts.push(svg("line", { class: `mark${tone}`, x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
      if (x - sign_x < 9 && !tone) continue; // signs must not cover each other
      sign_x = x;
      parts.push(svg("text", { class: `mark-sign${tone && " mark-sign-oom"}`, x, y: 10 }, SIGNS[event.what] ?? "·"));
    }
    return parts;
  }

  #line(points, of) {
    let path = "", before = null;
    for (const point of points) {
      const value = of(point);
      if (!known(value)) { before = null; continue; }
      const joined = before !== null && point.t - before <= GAP_S;
      path += `${joined ? "L" : "M"}${this.x(point.t).toFixed(1)} ${this.y(value).toFixed(1)}`;
      before = point.t;
    }
    return path;
  }

  // Where the interval ends beyond the axis the band fades out instead of filling the chart, and its end is written there.
  #interval(points, top) {
    const [, high] = this.band, inside = (point) => point[high] <= top * (1 + 1e-9);
    const closed = svg("path", { class: "band", d: this.#area(points, inside) });
    const open = this.#area(points, (point) => !inside(point));
    if (!open) return [closed];
    const id = `fade-${this.svg.parentElement.id}`;
    const fade = svg("linearGradient", { id, gradientUnits: "userSpaceOnUse", x1: 0, x2: 0, y1: this.y(0), y2: this.y(top) });
    fade.append(svg("stop", { class: "fade", offset: "0", "stop-opacity": ".2" }), svg("stop", { class: "fade", offset: ".9", "stop-opacity": "0" }));
    const parts = [fade, closed, svg("path", { class: "band-open", d: open, fill: `url(#${id})` })];
    const last = points.at(-1);
    if (known(last[high]) && !inside(last)) {
      const text = `interval up to ${this.format(last[high], true)} ↑`;
      parts.push(svg("text", { class: "beyond", x: this.width - RIGHT - 4, y: TOP + 12, "text-anchor": "end" }, text));
    }
    return parts;
  }

  #area(points, wanted) {
    const [low, high] = this.band;
    let path = "", piece = [];
    const close = () => {
      if (piece.length > 1) {
        const at = (point, name) => `${this.x(point.t).toFixed(1)} ${this.y(point[name]).toFixed(1)}`;
        path += `M${piece.map((point) => at(point, high)).join("L")}L${piece.reverse().map((point) => at(point, low)).join("L")}Z`;
      }
      piece = [];
    };
    for (const point of points) {
      const drawn = known(point[low]) && known(point[high]) && wanted(point);
      if (!drawn || (piece.length && point.t - piece.at(-1).t > GAP_S)) close();
      if (drawn) piece.push(point);
    }
    close();
    return path;
  }

  #describe(points, lines) {
    const now = lines.map((line) => `${line.name} ${this.#show(line.of(points.at(-1)))}`);
    this.svg.setAttribute("aria-label", `${this.name}: ${now.join(", ")} now. Arrow keys move through the last minutes; the table below has the numbers.`);
    const names = lines.map((line) => line.name).join("|") + this.timeline.events.length;
    if (this.legend.dataset.names === names) return;
    this.legend.dataset.names = names;
    const items = lines.map((line, i) => el("li", {}, el("i", { class: `c-${i}` }), line.name));
    if (this.timeline.events.length) items.push(el("li", {}, "▲ container started  ▽ ended  ✕ out of memory"));
    this.legend.replaceChildren(...items);
  }

  #show(value) {
    return known(value) ? this.format(value, true) : "unknown";
  }

  #point(x) {
    if (!this.x || !this.timeline?.points.length) return;
    const { points, last_s, span_s } = this.timeline;
    const t = last_s - span_s * (1 - (x - LEFT) / (this.width - LEFT - RIGHT));
    this.#move(points.reduce((best, point) => (Math.abs(point.t - t) < Math.abs(best.t - t) ? point : best)).t);
  }

  #key(event) {
    const step = { ArrowLeft: -10, ArrowRight: 10, PageUp: -60, PageDown: 60 }[event.key];
    if (event.key === "Escape") return this.#move(null);
    if (!step || !this.timeline?.points.length) return;
    event.preventDefault();
    this.readout.setAttribute("aria-live", "polite");
    const { points, last_s } = this.timeline;
    const t = (this.cursor_s ?? last_s) + step;
    this.#move((points.find((point) => point.t >= t) ?? points.at(-1)).t);
  }

  #move(t) {
    this.cursor_s = t;
    this.draw();
    if (t === null) this.readout.setAttribute("aria-live", "off");
  }

  #cursor() {
    const point = this.cursor_s === null ? null : this.timeline.points.find((one) => one.t >= this.cursor_s);
    if (!point) {
      if (this.readout.textContent) this.readout.textContent = "";
      return [];
    }
    const values = this.series(this.timeline).map((line) => `${line.name} ${this.#show(line.of(point))}`);
    if (this.band) values.push(`interval ${this.#show(point[this.band[0]])} to ${this.#show(point[this.band[1]])}`);
    const events = this.timeline.events.filter((one) => Math.abs(one.time_s - point.t) < 3).slice(0, 3);
    const happened = events.map((one) => `${SIGNS[one.what] ?? ""} ${one.pod}`);
    this.readout.textContent = [clock(point.t), ...values, ...happened].join(" · ");
    const x = this.x(point.t);
    return [svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM })];
  }
}

// The next round number: an axis that ends at 1, 2, 4, 5, 6, 8 or 10 times a power of ten.
export function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return power * [1, 2, 4, 5, 6, 8, 10].find((one) => one * power >= value * (1 - 1e-9));
}
