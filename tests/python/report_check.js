// report_test.py evaluates this in a report: `reportCheck` returns what is wrong with the page, as texts.
"use strict";
window.reportCheck = ((expected) => {
  const found = [];
  const complain = (text) => { if (found.length < 100) found.push(text); };
  for (const details of document.querySelectorAll("details")) details.open = true;

  // Nothing refers to other files, and names with markup or scripts have no effect.
  for (const element of document.querySelectorAll("[src], link, iframe, object, embed"))
    complain("refers to something outside: " + element.outerHTML.slice(0, 80));
  if (window.hostile) complain("a name of the program was run as a script");
  if (document.querySelector("b, i.hostile")) complain("a name of the program became markup");
  for (const id of expected.sections) {
    const section = document.getElementById(id);
    if (!section || section.textContent.trim().length < 80) complain("section " + id + " is missing");
  }
  for (const figure of document.querySelectorAll("figure"))
    if (!figure.querySelector(".legend li")) complain(`${figure.id} has no legend`);

  // --- Places ---

  const page = document.documentElement;
  if (page.scrollWidth > innerWidth + 1) complain(`the page is ${page.scrollWidth} wide in a window of ${innerWidth}`);
  const scrolls = (element) => {
    for (let at = element.parentElement; at; at = at.parentElement)
      if (at.classList.contains("scroll") || at.classList.contains("panel")) return true;
    return false;
  };
  for (const element of document.body.querySelectorAll("*")) {
    if (element.ownerSVGElement || scrolls(element)) continue;
    const box = element.getBoundingClientRect();
    if (box.width && (box.right > innerWidth + 1 || box.left < -1))
      complain(`<${element.localName} class="${element.className}"> is outside the page: ${box.left} to ${box.right}`);
  }
  const shows = (element) => element.checkVisibility() && element.getClientRects().length > 0;

  // No text of a picture overlaps another or is cut off.
  const checkTexts = (svg) => {
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
    // The roof rises from left to right, or is flat.
    for (const line of svg.querySelectorAll("line.roof")) {
      const { left, right, top, bottom } = line.getBoundingClientRect();
      const crosses = ([, box]) => {
        const [from, to] = [Math.max(left, box.left), Math.min(right, box.right)];
        const height = (x) => bottom - (bottom - top) * (x - left) / Math.max(1, right - left);
        return from < to && height(from) > box.top + 2 && height(to) < box.bottom - 2;
      };
      for (const [text] of boxes.filter(crosses)) complain(`${name}: the roof crosses "${text}"`);
    }
    for (const box of svg.querySelectorAll(".box")) {
      const rectangle = box.querySelector("rect").getBoundingClientRect();
      for (const text of box.querySelectorAll("text")) {
        const inside = text.getBoundingClientRect();
        if (inside.left < rectangle.left - 1 || inside.right > rectangle.right + 1)
          complain(`${name}: "${text.textContent}" is wider than its box`);
      }
    }
  };

  // No two lines of the page's text overlap, whichever elements they belong to. The graph clips what leaves its frame:
  // it is checked at its natural size below.
  const checkLines = () => {
    const lines = [];
    const range = document.createRange();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode;
      const parent = text.parentElement;
      if (!text.data.trim() || ["SCRIPT", "STYLE"].includes(parent.tagName) || !shows(parent)) continue;
      if (parent.closest(".panel, .viewer figure .scroll")) continue;
      range.selectNodeContents(text);
      for (const box of range.getClientRects()) lines.push({ text: text.data.trim(), box });
    }
    lines.sort((a, b) => a.box.top - b.box.top);
    for (const [k, { text, box }] of lines.entries()) {
      for (let other = k + 1; other < lines.length && lines[other].box.top < box.bottom - 3; ++other) {
        const rest = lines[other].box;
        const across = Math.min(box.right, rest.right) - Math.max(box.left, rest.left);
        if (across > 1 && Math.min(box.bottom, rest.bottom) - rest.top > 3)
          complain(`"${text.slice(0, 40)}" overlaps "${lines[other].text.slice(0, 40)}"`);
      }
    }
  };

  // --- Contrast ---

  const parse = (colour) => {
    const numbers = colour.match(/[\d.]+/g);
    return numbers && colour.startsWith("rgb") ? [...numbers.slice(0, 3).map(Number), numbers.length > 3 ? Number(numbers[3]) : 1] : [0, 0, 0, 0];
  };
  const blend = (top, under) => [0, 1, 2].map((k) => top[k] * top[3] + under[k] * (1 - top[3]));
  const luminance = (colour) => {
    const [r, g, b] = colour.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((l, r) => l - r);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const opacity = (element, own) => {
    let all = Number(own || 1);
    for (let at = element; at && at.localName !== "svg"; at = at.parentElement) all *= Number(getComputedStyle(at).opacity);
    return all;
  };
  const painted = (element, kind) => {
    const style = getComputedStyle(element);
    const colour = parse(style[kind]);
    colour[3] *= opacity(element, style[kind + "Opacity"]);
    return colour;
  };
  const need = (least, ratio, what) => { if (ratio < least - 0.005) complain(`${what}: contrast ${ratio.toFixed(2)}, not ${least}`); };

  const kLeastOfText = 4.5;
  const kLeastOfMarks = 3;
  const checkPageText = () => {
    for (const element of document.body.querySelectorAll("*")) {
      if (element.ownerSVGElement || ["SCRIPT", "STYLE"].includes(element.tagName) || !shows(element)) continue;
      if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
      const under = ground(element);
      need(kLeastOfText, contrast(blend(parse(getComputedStyle(element).color), under), under), `"${element.textContent.slice(0, 40)}"`);
    }
  };
  const sides = (shape) => shape.localName === "rect" ? [shape.width.baseVal.value, shape.height.baseVal.value] : [Infinity];
  const checkMarks = (svg) => {
    const under = ground(svg.parentElement);
    const shapes = [...svg.querySelectorAll("rect, circle, polygon, path, line")];
    const seen = new Map();  // by look: most marks look like some other mark
    for (const shape of shapes) {
      const means = shape.closest("[data-tip]") || svg.closest(".legend");
      if (!means || shape.classList.contains("grid")) continue;
      const stroke = Number.parseFloat(getComputedStyle(shape).strokeWidth) >= 0.8 ? painted(shape, "stroke") : [0, 0, 0, 0];
      const fill = shape.localName === "line" ? [0, 0, 0, 0] : painted(shape, "fill");
      // The edge of a mark covers what is thinner than it: the tail of a violin, a tensor of few bytes.
      const thin = stroke[3] > 0 && (shape.matches("polygon.violin") || Math.min(...sides(shape)) < 2);
      const key = [stroke, fill, thin].join();
      const ofEdge = contrast(blend(stroke, under), under);
      if (!seen.has(key)) seen.set(key, thin ? ofEdge : Math.max(ofEdge, contrast(blend(fill, under), under)));
      need(kLeastOfMarks, seen.get(key), `${svg.getAttribute("aria-label") || "legend"}: ${shape.localName} "${shape.getAttribute("class")}"`);
    }
    const filled = shapes.filter((shape) => shape.localName !== "line" && painted(shape, "fill")[3] > 0)
      .map((shape) => [shape.getBoundingClientRect(), shape]);
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
      let behind = under;
      for (const [rect, shape] of filled) {
        if (x < rect.left || rect.right < x || y < rect.top || rect.bottom < y) continue;
        const before = shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
        if (before && shape.localName === "rect") behind = blend(painted(shape, "fill"), behind);
        if (!before && ["rect", "circle"].includes(shape.localName))
          complain(`${svg.getAttribute("aria-label")}: "${text.textContent}" is covered by a mark`);
      }
      need(kLeastOfText, contrast(blend(painted(text, "fill"), behind), behind), `${svg.getAttribute("aria-label")}: "${text.textContent}"`);
    }
  };

  for (const svg of document.querySelectorAll("svg")) {
    if (svg.closest(".viewer figure") && !svg.closest(".legend")) continue;
    checkTexts(svg);
    checkMarks(svg);
  }
  // Every tab of the graph, at its natural size.
  for (const step of document.querySelectorAll(".bar [data-key=step]")) {
    for (const pass of document.querySelectorAll(".bar [data-key=pass]")) {
      step.click();
      pass.click();
      const svg = [...document.querySelectorAll(".viewer figure svg[aria-label]")].find(shows);
      const view = svg.getAttribute("viewBox");
      const all = svg.getBBox();
      svg.setAttribute("viewBox", `${all.x} ${all.y} ${all.width} ${all.height}`);
      svg.style.width = all.width + "px";
      svg.style.height = all.height + "px";
      checkTexts(svg);
      checkMarks(svg);
      svg.style.width = svg.style.height = "";
      svg.setAttribute("viewBox", view);
    }
  }
  for (const key of ["step", "pass"]) document.querySelector(`.bar [data-key=${key}]`)?.click();
  checkPageText();
  checkLines();

  // --- Numbers: the page shows the values of the JSON ---

  for (const [id, rows] of Object.entries(expected.json.tables)) {
    const table = document.getElementById("table_" + id);
    if (!table) {
      if (rows.length > 0) complain("table " + id + " is missing");
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
  for (const [key, fact] of Object.entries(expected.json.facts)) {
    const row = document.querySelector(`#facts tr[data-key="${key}"]`);
    const value = (cell) => "v" in cell.dataset ? Number(cell.dataset.v) : null;
    if (value(row.cells[1]) !== fact.before || value(row.cells[2]) !== fact.after) complain("fact " + key);
  }
  return found;
});

// Clicking a heading sorts, and pointing at an element shows its details.
window.useCheck = (() => {
  const found = [];
  const table = document.getElementById("table_launches");
  const heading = [...table.querySelectorAll("th")].findIndex((th) => th.textContent === "time");
  table.querySelectorAll("th button")[heading].click();
  const times = [...table.tBodies[0].rows].map((row) => Number(row.cells[heading].dataset.v || 0));
  if (times.some((time, k) => k > 0 && time > times[k - 1])) found.push("launches are not sorted by time");
  const node = document.querySelector("#picture_timeline [data-tip]");
  node.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true, clientX: 40, clientY: 40 }));
  const tip = document.getElementById("tip");
  if (tip.hidden || tip.textContent !== node.dataset.tip) found.push("a tap shows no details");
  tip.hidden = true;
  return found;
});

// The graph: opens on its content, zooms, fits, searches, and shows details of what is clicked.
window.graphCheck = (() => {
  const found = [];
  const check = (right, text) => { if (!right) found.push(text); };
  const viewer = document.querySelector(".viewer");
  const shown = () => [...viewer.querySelectorAll("figure")].find((figure) => !figure.hidden);
  const svg = shown().querySelector("svg");
  const frame = svg.parentElement.getBoundingClientRect();
  const inside = [...svg.querySelectorAll(".box")].filter((box) => box.querySelector(".node")).filter((box) => {
    const at = box.getBoundingClientRect();
    return at.left >= frame.left - 1 && at.right <= frame.right + 1 && at.top >= frame.top - 1 && at.bottom <= frame.bottom + 1;
  });
  check(inside.length > 0, "the graph does not open on its content");
  const middle = { x: (frame.left + frame.right) / 2, y: (frame.top + frame.bottom) / 2 };
  const shows = (test) => [...svg.querySelectorAll(".box")].map((box) => box.getBoundingClientRect()).some((at) =>
    at.right > frame.left && at.left < frame.right && at.bottom > frame.top && at.top < frame.bottom && test(at));
  const halves = { left: (at) => at.left < middle.x, right: (at) => at.right > middle.x, upper: (at) => at.top < middle.y, lower: (at) => at.bottom > middle.y };
  for (const half in halves) check(shows(halves[half]), `the graph opens with nothing in its ${half} half`);
  check(inside.every((box) => box.querySelector("text").getBoundingClientRect().height > 8), "the graph opens too small to read");
  const view = () => svg.viewBox.baseVal.width;
  const [out, more, fit] = [...viewer.querySelectorAll(".bar .group:nth-of-type(3) button")];
  const before = view();
  more.click();
  check(view() < before, "+ does not zoom in");
  out.click();
  check(Math.abs(view() / before - 1) < 0.01, "− does not zoom out");
  fit.click();
  const all = svg.getBBox();
  check(svg.viewBox.baseVal.x <= all.x + 1 && view() >= all.width - 1, "fit does not show all");

  const click = (element) => element.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  const panel = viewer.querySelector(".panel");
  const line = svg.querySelector("[data-tensor]");
  click(line);
  const name = panel.querySelector("h3").textContent;
  check(line.dataset.tip.startsWith(name) && line.classList.contains("chosen"), "a clicked tensor is not chosen");
  check(/size/.test(panel.textContent) && /shape/.test(panel.textContent), "the panel does not describe a tensor");
  check([...document.querySelectorAll("tr.chosen")].some((row) => row.cells[0].textContent === name), "the tensor's row is not marked");
  const boxes = [...svg.querySelectorAll(".box")].filter((box) => box.querySelector(".node"));
  let sources = 0;
  for (const box of boxes) {
    click(box);
    check(box.classList.contains("chosen"), "a clicked launch is not chosen");
    check(/reads/.test(panel.textContent) && /candidate/.test(panel.textContent), "the panel does not describe a launch");
    sources += panel.querySelectorAll("pre").length;
    if (panel.querySelector("pre")) check(/\{/.test(panel.querySelector("pre").textContent), "a kernel's source is empty");
  }
  check(sources > 0, "no launch shows the source of its kernel");
  const last = boxes[boxes.length - 1];
  const search = viewer.querySelector("input");
  search.value = last.dataset.tip.split("\n")[0];
  search.dispatchEvent(new Event("input"));
  check(last.classList.contains("hit"), "a search does not mark its hits");
  panel.querySelector(".close").click();
  check(!svg.querySelector(".chosen"), "closing the details keeps the choice");
  search.value = "";
  search.dispatchEvent(new Event("input"));

  viewer.querySelector('[data-value="before"]').click();
  check(shown().dataset.step === "before", "the toggle does not show the step before");
  viewer.querySelector('[data-value="backward"]').click();
  check(shown().dataset.step === "before" && shown().dataset.pass === "backward", "the toggle does not show backward");
  for (const value of ["after", "forward"]) viewer.querySelector(`[data-value="${value}"]`).click();
  return found;
});
