// A table of which only the rows in sight exist: 5,000 rows scroll and sort as lightly as 50.
import { el, setText } from "./dom.js";

export const ROW_PX = 30;
const MARGIN = 8; // rows beyond either edge, so that the keyboard and a quick wheel find them there

export class VirtualTable {
  #indices = [];
  #cells = () => [];
  #found = null;
  #drawing = false;

  constructor(scroller, table) {
    Object.assign(this, { scroller, table });
    this.body = el("tbody");
    this.above = el("tr", { class: "space", "aria-hidden": "true" }, el("td"));
    this.below = el("tr", { class: "space", "aria-hidden": "true" }, el("td"));
    scroller.addEventListener("scroll", () => this.#later(), { passive: true });
    new ResizeObserver(() => this.#later()).observe(scroller);
  }

  // columns: [{title, sort?}]; sorted: {by, rising}
  heads(columns, sorted, onSort) {
    const signature = JSON.stringify([columns, sorted]);
    if (this.table.dataset.columns === signature) return;
    this.table.dataset.columns = signature;
    const focused = this.table.contains(document.activeElement) ? document.activeElement.dataset.sort : null;
    const row = el("tr", { "aria-rowindex": "1" });
    for (const column of columns) {
      const cell = el("th", { scope: "col", class: column.text ? "text" : "" });
      if (sorted.by === column.sort) cell.setAttribute("aria-sort", sorted.rising ? "ascending" : "descending");
      const button = el("button", { type: "button", "data-sort": column.sort }, column.title);
      button.addEventListener("click", () => onSort(column.sort));
      cell.append(button);
      row.append(cell);
    }
    this.table.replaceChildren(el("thead", {}, row), this.body);
    if (focused) row.querySelector(`button[data-sort="${focused}"]`)?.focus();
    for (const space of [this.above, this.below]) space.firstElementChild.setAttribute("colspan", String(columns.length));
    this.body.replaceChildren(this.above, this.below);
  }

  // indices: which rows in which order; cells(index): [text or {text, tone, title}, …]
  show(indices, cells) {
    this.#indices = indices;
    this.#cells = cells;
    this.table.setAttribute("aria-rowcount", String(indices.length + 1));
    this.#draw();
  }

  jump(index) {
    const place = this.#indices.indexOf(index);
    if (place < 0) return;
    this.#found = index;
    this.scroller.scrollTop = Math.max(0, (place - 3) * ROW_PX);
    this.scroller.scrollIntoView({ block: "nearest" });
    this.#draw();
  }

  #later() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => { this.#drawing = false; this.#draw(); });
  }

  #draw() {
    const all = this.#indices.length;
    const inSight = Math.ceil((this.scroller.clientHeight || 600) / ROW_PX);
    const first = Math.max(0, Math.min(Math.floor(this.scroller.scrollTop / ROW_PX) - MARGIN, all - 1));
    const last = Math.min(all, first + inSight + 2 * MARGIN);
    this.above.style.height = `${first * ROW_PX}px`;
    this.below.style.height = `${(all - last) * ROW_PX}px`;
    while (this.body.rows.length - 2 > last - first) this.below.previousElementSibling.remove();
    for (let place = first; place < last; place++) this.#fill(place - first + 1, place);
  }

  #fill(at, place) {
    const index = this.#indices[place];
    const row = this.body.rows[at] === this.below || !this.body.rows[at] ? this.body.insertBefore(el("tr"), this.below) : this.body.rows[at];
    row.setAttribute("aria-rowindex", String(place + 2));
    row.className = index === this.#found ? "found" : "";
    const cells = this.#cells(index);
    cells.forEach((given, i) => {
      const cell = row.cells[i] ?? row.appendChild(i === 0 ? el("th", { scope: "row" }) : el("td"));
      const { text, tone = "", title = "" } = typeof given === "string" ? { text: given } : given;
      setText(cell, text);
      if (cell.className !== tone) cell.className = tone;
      if (cell.title !== title) cell.title = title;
    });
    while (row.cells.length > cells.length) row.lastElementChild.remove();
  }
}
