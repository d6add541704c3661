// Script of reports: shows details of what is pointed at or tapped, and sorts tables by the heading that is clicked.
// marks.js and graph.js follow it; `Tip` and `make` are for them, too.
"use strict";
// An element with attributes and children; texts are never markup.
const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

const Tip = (() => {
  for (const title of document.querySelectorAll("svg title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  const tip = document.getElementById("tip");
  let held = 0;  // until then, scrolling does not hide it
  const hide = () => { tip.hidden = true; };
  const show = (text, x, y) => {
    tip.hidden = false;
    if (tip.textContent !== text) tip.textContent = text;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + 16 + box.height < innerHeight ? y + 16 : Math.max(4, y - box.height - 12)) + "px";
  };
  const showAt = (mark) => {
    const box = mark.getBoundingClientRect();
    held = performance.now() + 300;
    show(mark.dataset.tip, (box.left + box.right) / 2, Math.min(box.bottom, innerHeight - 40));
  };
  const follow = (event) => {
    const over = event.target.closest ? event.target.closest("[data-tip]") : null;
    if (over) show(over.dataset.tip, event.clientX, event.clientY);
    else hide();
  };
  for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, follow);
  document.addEventListener("scroll", () => { if (performance.now() > held) hide(); }, true);
  return { hide, showAt };
})();

(() => {
  const key = (row, column) => {
    const cell = row.cells[column];
    return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return 1;
    if (typeof b === "number") return -1;
    return a < b ? -1 : a > b ? 1 : 0;
  };
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const heading = button.parentNode;
      const body = heading.closest("table").tBodies[0];
      const down = heading.getAttribute("aria-sort") !== "descending";
      for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      rows.sort((a, b) => compare(key(a, heading.cellIndex), key(b, heading.cellIndex)) * (down ? -1 : 1));
      body.append(...rows);
    });
  }
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
})();
