// Script of reports: shows details of what is pointed at or tapped, and sorts tables by the heading that is clicked.
"use strict";
(() => {
  for (const title of document.querySelectorAll("svg title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  const tip = document.getElementById("tip");
  const show = (event) => {
    const over = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !over;
    if (!over) return;
    tip.textContent = over.dataset.tip;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 8)) + "px";
    const below = event.clientY + 16;
    tip.style.top = (below + box.height < innerHeight ? below : Math.max(4, event.clientY - box.height - 12)) + "px";
  };
  for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);

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
