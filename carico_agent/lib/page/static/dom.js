// Elements from plain data. Text goes in through textContent only: names of Pods and workloads are hostile input.

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children); // strings become text nodes
  return made;
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(tag, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function show(node, visible) {
  node.hidden = !visible;
}

const MAX_COLUMNS = 5; // of a table that fits on a phone; the rows of a wider one become blocks there

// A table with reused rows: focus, selection and scrolling survive an update a second.
// columns: [{title, text?, sort?}], rows: [[cell, …]] with cell = string or {text, tone?, title?}.
export function fillTable(table, columns, rows, onSort = null, sorted = null) {
  const signature = JSON.stringify([columns, sorted]);
  if (table.dataset.columns !== signature) {
    table.dataset.columns = signature;
    table.classList.toggle("stack", columns.length > MAX_COLUMNS);
    const focused = table.contains(document.activeElement) ? document.activeElement.textContent : null;
    table.replaceChildren(el("thead", {}, heads(columns, onSort, sorted)), el("tbody"));
    for (const button of table.querySelectorAll("button")) if (button.textContent === focused) button.focus();
  }
  show(table, rows.length > 0);
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  rows.forEach((row, index) => fillRow(body, index, row, columns));
}

function heads(columns, onSort, sorted) {
  const row = el("tr");
  for (const column of columns) {
    const cell = el("th", { scope: "col", class: column.text ? "text" : "" });
    if (column.sort && onSort) {
      const button = el("button", { type: "button" }, column.title);
      button.addEventListener("click", () => onSort(column.sort));
      cell.append(button);
      if (sorted === column.sort) cell.setAttribute("aria-sort", column.sort === "name" ? "ascending" : "descending");
    } else cell.textContent = column.title;
    row.append(cell);
  }
  return row;
}

function fillRow(body, index, cells, columns) {
  const row = body.rows[index] ?? body.appendChild(el("tr"));
  cells.forEach((given, place) => {
    const cell = row.cells[place] ?? row.appendChild(place === 0 ? el("th", { scope: "row" }) : el("td"));
    const { text, tone = "", title = "" } = typeof given === "string" ? { text: given } : given;
    setText(cell, text);
    if (place && cell.dataset.label !== columns[place]?.title) cell.dataset.label = columns[place]?.title ?? "";
    const name = `${columns[place]?.text ? "text" : ""} ${tone}`.trim();
    if (cell.className !== name) cell.className = name;
    if (cell.title !== title) cell.title = title;
  });
  while (row.cells.length > cells.length) row.lastElementChild.remove();
}
