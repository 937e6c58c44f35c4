// Panels of the control plane (`carico plane`) and of Jobs elsewhere (`carico burst`), where the page knows them.
import { number, percent } from "./format.js";
import { byId, fillTable, setText, show } from "./dom.js";

const PLANE = ["Component", "Requests per second", "Cores in use", "Waiting", "Throttled"].map((title) => ({ title }));
const BURST = [{ title: "Target" }, { title: "State", text: true }, { title: "Jobs there" }];

export function showPlane(plane) {
  show(byId("plane"), Boolean(plane));
  if (!plane) return;
  setText(byId("plane-text"), plane.error ?? plane.text);
  fillTable(byId("plane-table"), PLANE, (plane.components ?? []).map((one) => [
    one.name, number(one.arrivals_per_s), percent(one.utilisation), number(one.waiting), percent(one.throttled_ratio),
  ]));
}

export function showBurst(burst) {
  show(byId("burst"), Boolean(burst));
  if (!burst) return;
  setText(byId("burst-text"), burst.error ?? burst.text);
  fillTable(byId("burst-table"), BURST, (burst.targets ?? []).map(([name, condition, jobs]) => [name, condition, String(jobs)]));
}
