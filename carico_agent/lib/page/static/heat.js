// The heat strip: a cell per node in the order of names. One path per colour, because 5,000 elements would take a tenth
// of a second to lay out; colours stay in the style sheet, so dark mode and printing need nothing here.
import { byId, el, setText, svg } from "./dom.js";
import { count } from "./format.js";
import { STEPS } from "./nodes.js";

const AREA_PX = 180, MIN_PX = 4, MAX_PX = 22;

export class Heat {
  constructor(onChoose) {
    this.svg = svg("svg", { role: "img" });
    this.paths = new Map();
    byId("heat").replaceChildren(this.svg);
    this.svg.addEventListener("pointermove", (event) => this.#read(this.#at(event)));
    this.svg.addEventListener("pointerleave", () => setText(byId("heat-readout"), ""));
    this.svg.addEventListener("click", (event) => { const i = this.#at(event); if (i !== null) onChoose(i); });
    new ResizeObserver(() => this.draw()).observe(byId("heat"));
  }

  update(nodes) {
    this.nodes = nodes;
    this.draw();
  }

  draw() {
    const width = byId("heat").clientWidth;
    if (!this.nodes || !width) return;
    const all = Math.max(1, this.nodes.count);
    this.size = Math.min(MAX_PX, Math.max(MIN_PX, Math.floor(Math.sqrt((width * AREA_PX) / all))));
    this.across = Math.max(1, Math.floor(width / this.size));
    const height = Math.ceil(all / this.across) * this.size;
    const inner = this.size - 1, drawn = new Map(), counts = new Map();
    this.nodes.byName.forEach((i, place) => {
      const step = this.nodes.step(i);
      const x = (place % this.across) * this.size, y = Math.floor(place / this.across) * this.size;
      if (!drawn.has(step)) drawn.set(step, []);
      drawn.get(step).push(`M${x} ${y}h${inner}v${inner}h-${inner}z`);
      counts.set(step, (counts.get(step) ?? 0) + 1);
    });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.style.height = `${height}px`;
    for (const step of this.paths.keys()) if (!drawn.has(step)) { this.paths.get(step).remove(); this.paths.delete(step); }
    for (const [step, parts] of drawn) {
      if (!this.paths.has(step)) this.paths.set(step, this.svg.appendChild(svg("path", { class: `f-${step}` })));
      this.paths.get(step).setAttribute("d", parts.join(""));
    }
    this.#legend(counts);
  }

  #legend(counts) {
    const rows = [...STEPS.map((step, i) => [String(i), i === 0 ? "full" : `room for ${step.name}`]), ["stale", "number expired"], ["unknown", "no number"]];
    const shown = rows.filter(([step]) => counts.has(step)).map(([step, name]) => [step, `${name}: ${count(counts.get(step))}`]);
    this.svg.setAttribute("aria-label", `Nodes by room. ${shown.map(([, text]) => text).join(", ")}. The table below has every node.`);
    byId("heat-legend").replaceChildren(...shown.map(([step, text]) => el("li", {}, el("i", { class: `b-${step}` }), text)));
  }

  #at(event) {
    const place = Math.floor(event.offsetY / this.size) * this.across + Math.floor(event.offsetX / this.size);
    return this.nodes && event.offsetX < this.across * this.size ? this.nodes.byName[place] ?? null : null;
  }

  #read(i) {
    const { columns } = this.nodes;
    setText(byId("heat-readout"), i === null ? "" : `${columns.name[i]}: ${describe(this.nodes, i)}, ${columns.pods[i]} Pods`);
  }
}

export function describe(nodes, i) {
  const step = nodes.step(i);
  if (step === "stale") return "its number has expired";
  if (step === "unknown") return "no number";
  return step === "0" ? "full" : `${nodes.whole(i)} more`;
}
