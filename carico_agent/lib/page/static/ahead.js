// The last and the next 24 hours of the Pods that run now: what they used, and the band of the same hours of the last days.
import { byId, el, fillTable, setText, svg } from "./dom.js";
import { capital, clock, known, number, percent, resourceName } from "./format.js";

const HEIGHT = 190, LEFT = 44, RIGHT = 10, TOP = 16, BOTTOM = 22;
const STEP_S = 1800;
const TICK_S = 21600; // between two labels of the axis, twice as long on a phone
const MODES = { unknown: "Nothing is known about the coming hours yet.", "first day": "No whole day was seen yet: the coming hours are a guess." };

export function showHeld({ pod_capacity_held, horizon_s }) {
  setText(byId("held-for"), known(horizon_s) ? span(horizon_s) : "the day");
  setText(byId("held"), known(pod_capacity_held) ? `${number(pod_capacity_held)} more Pods` : "unknown");
}

export function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 86400 ? `${Math.round(seconds / 3600)} h` : seconds === 86400 ? "the day" : `${Math.round(seconds / 86400)} days`;
}

export function showAhead(body) {
  const names = Object.keys(body.limits);
  setText(byId("ahead-sentence"), MODES[body.outlook] ?? peaks(body, names));
  draw(body, names);
  if (byId("ahead-details").open) {
    const columns = ["Time", ...names.flatMap((name) => [`${capital(resourceName(name))}, mean`, "at most"])].map((title) => ({ title }));
    const rows = body.next.time_s.map((t, i) => [clock(t), ...names.flatMap((name) => [percent(body.next[name].middle[i]), percent(body.next[name].high[i])])]);
    fillTable(byId("ahead-table"), columns, rows);
  }
}

function peaks(body, names) {
  const told = names.map((name) => {
    const values = body.next[name].middle.map((value) => value ?? -1);
    const at = values.indexOf(Math.max(...values));
    return values[at] < 0 ? null : `${resourceName(name)} ${percent(values[at])} at ${clock(body.next.time_s[at]).slice(0, 5)}`;
  });
  return `Usual peak of the Pods that run now: ${told.filter(Boolean).join(", ")}.`;
}

function draw(body, names) {
  const chart = byId("ahead-chart");
  const times = [...body.past.time_s, ...body.next.time_s];
  const width = chart.clientWidth;
  if (!times.length || !width) return chart.replaceChildren();
  const first = times[0], last = times.at(-1) + STEP_S;
  const x = (t) => LEFT + ((width - LEFT - RIGHT) * (t - first)) / (last - first);
  const y = (value) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * Math.min(1, value);
  const parts = [0, 0.5, 1].flatMap((value) => [
    svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, percent(value)),
  ]);
  names.forEach((name, i) => {
    parts.push(svg("path", { class: "band", d: area(body.next, name, x, y) }));
    for (const part of [body.past, body.next]) parts.push(svg("path", { class: `line l-${i}${part === body.next ? " next" : ""}`, d: line(part, name, x, y) }));
  });
  const now = x(body.past.time_s.length ? body.past.time_s.at(-1) + STEP_S : first);
  parts.push(svg("line", { class: "cursor", x1: now, x2: now, y1: TOP, y2: HEIGHT - BOTTOM }));
  parts.push(svg("text", { x: now, y: 11, "text-anchor": "middle" }, "now"));
  const tick_s = width < 480 ? 2 * TICK_S : TICK_S;
  for (let t = tick_s * Math.ceil(first / tick_s); t < last; t += tick_s) { // the slots begin at any time of the day
    const edge = x(t) > width - 24 ? "end" : x(t) < 24 ? "start" : "middle";
    parts.push(svg("text", { class: "hour", x: x(t), y: HEIGHT - 5, "text-anchor": edge }, clock(t).slice(0, 5)));
  }
  const picture = svg("svg", { role: "img", viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none" });
  picture.setAttribute("aria-label", `Use of the last and the next 24 hours. ${byId("ahead-sentence").textContent} The table below has the numbers.`);
  picture.append(...parts);
  const legend = el("ul", { class: "legend" }, ...names.map((name, i) => el("li", {}, el("i", { class: `c-${i}` }), capital(resourceName(name)))));
  return chart.replaceChildren(picture, legend);
}

function line(part, name, x, y) {
  let pen = "M";
  return part.time_s.map((t, i) => {
    const value = part[name].middle[i];
    if (value === null) { pen = "M"; return ""; }
    const step = `${pen}${x(t + STEP_S / 2).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
    return step;
  }).join("");
}

function area(part, name, x, y) {
  const at = part.time_s.map((t, i) => [x(t + STEP_S / 2), part[name].low[i], part[name].high[i]]).filter(([, low]) => low !== null);
  if (!at.length) return "";
  const over = at.map(([left, , high]) => `${left.toFixed(1)} ${y(high).toFixed(1)}`), under = at.map(([left, low]) => `${left.toFixed(1)} ${y(low).toFixed(1)}`);
  return `M${over.join("L")}L${under.reverse().join("L")}Z`;
}
