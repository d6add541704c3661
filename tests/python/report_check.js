// Added to a copy of a report by report_test.py: looks at the page as a reader would and leaves what it found
// in the page around it.
"use strict";
(() => {
  const found = [];
  const complain = (text) => { if (found.length < 20) found.push(text); };
  document.addEventListener("securitypolicyviolation", (event) => complain("refused: " + event.blockedURI));
  for (const details of document.querySelectorAll("details")) details.open = true;

  // Nothing is fetched, and nothing that names ask for has run.
  for (const entry of performance.getEntriesByType("resource")) complain("fetched " + entry.name);
  for (const element of document.querySelectorAll("[src], link, iframe, object, embed"))
    complain("refers to something outside: " + element.outerHTML.slice(0, 80));
  if (window.hostile) complain("a name of the program was run as a script");
  if (document.querySelector("b, i.hostile")) complain("a name of the program became markup");

  for (const id of EXPECTED.sections) {
    const section = document.getElementById(id);
    if (!section || section.textContent.trim().length < 80) complain("section " + id + " is not there");
  }
  if (document.documentElement.scrollWidth > innerWidth + 1)
    complain(`the page is ${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);

  // No two texts of a picture overlap, and none is cut off.
  for (const svg of document.querySelectorAll("svg")) {
    const name = svg.getAttribute("aria-label");
    const frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    for (const [k, [text, box]] of boxes.entries()) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        complain(`${name}: "${text}" is cut off`);
      for (const [other, rest] of boxes.slice(k + 1)) {
        const across = Math.min(box.right, rest.right) - Math.max(box.left, rest.left);
        const down = Math.min(box.bottom, rest.bottom) - Math.max(box.top, rest.top);
        if (across > 1 && down > 3) complain(`${name}: "${text}" overlaps "${other}"`);
      }
    }
  }

  // What is shown is what the JSON has.
  for (const [id, rows] of Object.entries(EXPECTED.json.tables)) {
    const table = document.getElementById("table_" + id);
    if (!table) {
      if (rows.length > 0) complain("table " + id + " is not there");
      continue;
    }
    const shown = [...table.tBodies[0].rows];
    if (shown.length !== rows.length) complain(`table ${id} has ${shown.length} rows, not ${rows.length}`);
    rows.forEach((row, k) => Object.values(row).forEach((value, column) => {
      const cell = shown[k].cells[column];
      const same = value === null ? !("v" in cell.dataset)
        : typeof value === "number" ? Number(cell.dataset.v) === value
        : cell.firstChild === null ? value === "" : cell.firstChild.textContent === value;
      if (!same) complain(`table ${id}, row ${k}, column ${column}: ${cell.textContent} where the JSON has ${value}`);
    }));
  }
  for (const [key, fact] of Object.entries(EXPECTED.json.facts)) {
    const row = document.querySelector(`#facts tr[data-key="${key}"]`);
    const value = (cell) => "v" in cell.dataset ? Number(cell.dataset.v) : null;
    if (value(row.cells[1]) !== fact.before || value(row.cells[2]) !== fact.after) complain("fact " + key);
  }

  // Headings sort, and what is pointed at shows its details.
  const heading = [...document.querySelectorAll("#table_launches th")].findIndex((th) => th.textContent === "time");
  const table = document.getElementById("table_launches");
  table.querySelectorAll("th button")[heading].click();
  const times = [...table.tBodies[0].rows].map((row) => Number(row.cells[heading].dataset.v || 0));
  if (times.some((time, k) => k > 0 && time > times[k - 1])) complain("launches are not sorted by time");
  const node = document.querySelector("[data-tip]");
  node.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true, clientX: 40, clientY: 40 }));
  const tip = document.getElementById("tip");
  if (tip.hidden || tip.textContent !== node.dataset.tip) complain("a tap shows no details");
  tip.hidden = true;

  const dark = getComputedStyle(document.body).backgroundColor !== "rgb(255, 255, 255)";
  const result = document.createElement("pre");
  result.hidden = true;
  result.textContent = "FOUND" + JSON.stringify({ found, dark, width: innerWidth }) + "DNUOF";
  parent.document.body.append(result);
})();
