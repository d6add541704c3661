// The graph: tabs for before and after, forward and backward; zoom, move, fit; search; details of what is selected.
// Without this script the page shows its pictures one after another.
(() => {
  const kReadable = 0.9;  // the smallest scale at which a picture opens: pixels of the screen for one of the picture
  const kLargest = 4;
  const kMargin = 8;  // pixels of the picture that are kept free around a box

  // One picture: which section of it is visible.
  class Stage {
    constructor(figure) {
      this.figure = figure;
      this.svg = figure.querySelector("svg");
      this.frame = this.svg.parentNode;
      this.width = this.svg.viewBox.baseVal.width;
      this.height = this.svg.viewBox.baseVal.height;
      this.whole = this.svg.getAttribute("viewBox");
      const data = figure.querySelector("script");
      this.details = data ? JSON.parse(data.textContent) : null;
      this.boxes = [...this.svg.querySelectorAll("[data-box]")];
      this.lines = [...this.svg.querySelectorAll("[data-tensor]")];
      this.opened = false;
    }
    get step() { return this.figure.dataset.step; }
    get pass() { return this.figure.dataset.pass; }
    size() { return { w: Math.max(1, this.frame.clientWidth), h: Math.max(1, this.frame.clientHeight) }; }
    apply() {
      const { w, h } = this.size();
      const seen = { w: w / this.scale, h: h / this.scale };
      this.x = Math.max(-0.8 * seen.w, Math.min(this.x, this.width - 0.2 * seen.w));
      this.y = Math.max(-0.8 * seen.h, Math.min(this.y, this.height - 0.2 * seen.h));
      this.svg.setAttribute("viewBox", `${this.x} ${this.y} ${seen.w} ${seen.h}`);
      this.middle = { x: this.x + seen.w / 2, y: this.y + seen.h / 2 };
    }
    // The frame has another size: what was in the middle stays there. A frame without a size shows nothing to keep.
    resize() {
      if (this.opened && this.frame.clientWidth > 0 && this.frame.clientHeight > 0) this.look(this.middle.x, this.middle.y, this.scale);
    }
    fitting() { const { w, h } = this.size(); return Math.min(w / this.width, h / this.height, 1.5); }
    look(x, y, scale) {  // with that point in the middle
      const { w, h } = this.size();
      this.scale = scale;
      this.x = x - w / scale / 2;
      this.y = y - h / scale / 2;
      this.apply();
    }
    fit() { this.look(this.width / 2, this.height / 2, this.fitting()); }
    // All of it if that is readable, else its first operator or launch, and as much of the others as fits.
    open() {
      if (this.opened) return;
      this.opened = true;
      if (this.fitting() >= kReadable) return this.fit();
      const first = (this.boxes.find((box) => box.querySelector(".node")) || this.boxes[0]).getBBox();
      const { w, h } = this.size();
      const seen = { w: w / kReadable, h: h / kReadable };
      const y = Math.max(first.y + first.height, seen.h / 2);
      const x = this.width <= seen.w ? this.width / 2 : this.fullest(first, y - seen.h / 2, seen) + seen.w / 2;
      this.look(x, y, kReadable);
      return undefined;
    }
    // The left edge of the window of this height and size that shows most of the boxes, and all of the first one.
    fullest(first, top, seen) {
      const most = Math.max(0, Math.min(first.x - kMargin, this.width - seen.w));
      const least = Math.min(most, Math.max(0, first.x + first.width + kMargin - seen.w));
      const boxes = this.boxes.map((box) => box.getBBox());
      const common = (from, to, low, high) => Math.max(0, Math.min(to, high) - Math.max(from, low));
      const shown = (left) => boxes.reduce((sum, { x, y, width, height }) =>
        sum + common(x, x + width, left, left + seen.w) * common(y, y + height, top, top + seen.h), 0);
      const edges = boxes.flatMap(({ x, width }) => [x - kMargin, x + width + kMargin - seen.w]);
      const lefts = [(least + most) / 2, ...edges.filter((left) => left > least && left < most), least, most];
      return lefts.reduce((best, left) => shown(left) > shown(best) + 1 ? left : best);
    }
    zoom(by, x = this.size().w / 2, y = this.size().h / 2) {
      const scale = Math.max(Math.min(this.fitting(), 0.1), Math.min(this.scale * by, kLargest));
      this.x += x / this.scale - x / scale;
      this.y += y / this.scale - y / scale;
      this.scale = scale;
      this.apply();
    }
    move(dx, dy) {
      this.x -= dx / this.scale;
      this.y -= dy / this.scale;
      this.apply();
    }
    show(mark) {
      const box = mark.getBBox();
      const { w, h } = this.size();
      const outside = box.x < this.x || box.y < this.y || box.x + box.width > this.x + w / this.scale ||
        box.y + box.height > this.y + h / this.scale;
      if (outside) this.look(box.x + box.width / 2, box.y + box.height / 2, Math.max(this.scale, kReadable));
    }
    node(box) { return this.details ? this.details.nodes[box.dataset.box] : null; }
    tensorOf(line) { return this.details ? this.details.tensors[line.dataset.tensor] : null; }
  }

  // Drags and pinches.
  const listen = (stage, pick) => {
    const pointers = new Map();
    let dragged = 0;
    const spread = () => {
      const [a, b] = [...pointers.values()];
      return Math.hypot(a.x - b.x, a.y - b.y);
    };
    stage.frame.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      if (pointers.size === 1) dragged = 0;
    });
    const over = (event) => pointers.delete(event.pointerId);
    for (const kind of ["pointerup", "pointercancel", "pointerleave"]) stage.frame.addEventListener(kind, over);
    stage.frame.addEventListener("pointermove", (event) => {
      const last = pointers.get(event.pointerId);
      if (!last) return;
      const before = pointers.size === 2 ? spread() : 0;
      const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      dragged += Math.abs(dx) + Math.abs(dy);
      if (dragged < 5) return;
      Tip.hide();
      if (pointers.size === 2 && before > 0) {
        const frame = stage.frame.getBoundingClientRect();
        stage.zoom(spread() / before, event.clientX - frame.left, event.clientY - frame.top);
      } else if (pointers.size === 1) stage.move(dx, dy);
    });
    stage.frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;  // else the page scrolls
      event.preventDefault();
      const frame = stage.frame.getBoundingClientRect();
      stage.zoom(Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
    }, { passive: false });
    stage.frame.addEventListener("click", (event) => {
      if (dragged >= 5) return;
      pick(event.target.closest("[data-box], [data-tensor]"));
    });
    stage.svg.addEventListener("keydown", (event) => {
      const keys = { "+": () => stage.zoom(1.25), "=": () => stage.zoom(1.25), "-": () => stage.zoom(0.8), 0: () => stage.fit() };
      if (event.key in keys) keys[event.key]();
      else if (event.key === "Enter" || event.key === " ") pick(Marks.current(stage.svg));
      else return;
      event.preventDefault();
    });
    stage.svg.addEventListener("mark", (event) => stage.show(event.detail));
  };

  class Viewer {
    constructor(root) {
      this.root = root;
      this.stages = [...root.querySelectorAll("figure")].map((figure) => new Stage(figure));
      this.shown = this.stages[0];
      this.chosen = null;
      this.panel = make("aside", { class: "panel", "aria-live": "polite", "aria-label": "details" });
      const panes = make("div", { class: "panes" }, make("div", { class: "stages" }, ...this.stages.map((s) => s.figure)), this.panel);
      root.append(this.bar(), panes);
      root.classList.add("ready");
      for (const stage of this.stages) {
        listen(stage, (mark) => this.pick(stage, mark));
        new ResizeObserver(() => stage.resize()).observe(stage.frame);
      }
      this.tables();
      this.turn(this.shown.step, this.shown.pass);
      this.describe();
      addEventListener("beforeprint", () => { for (const stage of this.stages) stage.svg.setAttribute("viewBox", stage.whole); });
      addEventListener("afterprint", () => this.shown.apply());
    }

    bar() {
      const toggle = (key) => {
        const values = [...new Set(this.stages.map((stage) => stage[key]))];
        return make("span", { class: "group", role: "group", "aria-label": key }, ...values.map((value) => {
          const button = make("button", { type: "button", "data-key": key, "data-value": value }, value);
          button.addEventListener("click", () => this.turn(key === "step" ? value : this.shown.step, key === "pass" ? value : this.shown.pass));
          return button;
        }));
      };
      const act = (text, label, action) => {
        const button = make("button", { type: "button", "aria-label": label, title: label }, text);
        button.addEventListener("click", action);
        return button;
      };
      this.search = make("input", { type: "search", placeholder: "operator or tensor", "aria-label": "find an operator, launch or tensor" });
      this.found = make("span", { class: "weak", role: "status" });
      this.search.addEventListener("input", () => this.find(false));
      this.search.addEventListener("keydown", (event) => { if (event.key === "Enter") this.find(true); });
      return make("div", { class: "bar" }, toggle("step"), toggle("pass"),
        make("span", { class: "group" }, act("−", "zoom out", () => this.shown.zoom(0.8)), act("+", "zoom in", () => this.shown.zoom(1.25)),
          act("fit", "show the whole graph", () => this.shown.fit())), this.search, this.found);
    }

    turn(step, pass) {
      const stage = this.stages.find((s) => s.step === step && s.pass === pass) || this.stages.find((s) => s.step === step);
      if (!stage) return;
      this.shown = stage;
      for (const other of this.stages) other.figure.hidden = other !== stage;
      for (const button of this.root.querySelectorAll(".bar [data-key]"))
        button.setAttribute("aria-pressed", String(button.dataset.value === stage[button.dataset.key]));
      stage.open();
      this.found.textContent = "";
    }

    // Everything whose name has the text; Enter goes from one to the next.
    find(next) {
      const text = this.search.value.trim().toLowerCase();
      const named = (mark) => mark.dataset.tip.toLowerCase().includes(text);
      const hits = text ? [...this.shown.boxes, ...this.shown.lines].filter(named) : [];
      for (const mark of this.shown.svg.querySelectorAll(".hit")) mark.classList.remove("hit");
      for (const mark of hits) mark.classList.add("hit");
      this.hit = next && hits.length ? ((this.hit ?? -1) + 1) % hits.length : undefined;
      this.found.textContent = !text ? "" : hits.length ? `${hits.length} found: Enter shows the next` : "not in this graph";
      if (this.hit !== undefined) this.pick(this.shown, hits[this.hit]);
      if (this.hit !== undefined) this.shown.show(hits[this.hit]);
    }

    pick(stage, mark) {
      if (!mark || !stage.details) return this.choose(null);
      if (mark.dataset.tensor !== undefined) return this.choose({ tensor: stage.tensorOf(mark).name, index: Number(mark.dataset.tensor) });
      const node = stage.node(mark);
      return this.choose("tensor" in node ? { tensor: stage.details.tensors[node.tensor].name, index: node.tensor } : { name: node.name });
    }

    // Selects a tensor by name, in all pictures, or an operator or launch.
    choose(chosen) {
      this.chosen = chosen;
      for (const stage of this.stages) this.mark(stage);
      this.describe();
      this.markRows();
    }

    // The box of the operator or launch with this name, in the shown picture if it is there.
    place(name) {
      for (const stage of [this.shown, ...this.stages]) {
        const box = stage.boxes.find((b) => stage.node(b)?.name === name);
        if (box) return { stage, box };
      }
      return null;
    }
    go(name) {
      const place = this.place(name);
      if (!place) return;
      this.turn(place.stage.step, place.stage.pass);
      this.choose({ name });
      place.stage.show(place.box);
    }

    mark(stage) {
      for (const mark of stage.svg.querySelectorAll(".chosen, .near")) mark.classList.remove("chosen", "near");
      stage.svg.classList.toggle("picked", this.chosen !== null);
      if (!this.chosen || !stage.details) return;
      const { tensors, nodes } = stage.details;
      const own = nodes.find((node) => node.name !== undefined && node.name === this.chosen.name);
      const touched = new Set(own ? [...own.reads, ...own.writes] : []);  // by the chosen operator or launch
      const isChosen = (at) => tensors[at].name === this.chosen.tensor;
      for (const line of stage.lines) {
        const at = Number(line.dataset.tensor);
        if (isChosen(at)) line.classList.add("chosen");
        else if (touched.has(at)) line.classList.add("near");
      }
      for (const box of stage.boxes) {
        const node = stage.node(box);
        const all = "tensor" in node ? [node.tensor] : [...node.reads, ...node.writes];
        if (node === own || ("tensor" in node && isChosen(node.tensor))) box.classList.add("chosen");
        else if (all.some((at) => isChosen(at) || touched.has(at))) box.classList.add("near");
      }
    }

    describe() {
      const { panel } = this;
      panel.replaceChildren();
      if (!this.chosen) {
        panel.append(make("p", { class: "weak" }, this.stages[0].details
          ? "Select a box or a line, with the pointer or with the arrow keys and Enter, to see its details here. Drag to move; pinch, or turn the wheel with Ctrl, to zoom."
          : "The details were left out, to keep the page small."));
        return;
      }
      const close = make("button", { type: "button", "aria-label": "close the details", class: "close" }, "×");
      close.addEventListener("click", () => this.choose(null));
      panel.append(close);
      if (this.chosen.name !== undefined) this.describeNode();
      else this.describeTensor();
    }
    facts(list) {
      return make("dl", {}, ...list.flatMap(([what, value]) => [make("dt", {}, what), make("dd", {}, value)]));
    }
    // Buttons with a heading.
    links(heading, names, action) {
      if (!names.length) return;
      this.panel.append(make("h4", {}, heading), make("ul", {}, ...names.map(([text, value]) => {
        const button = make("button", { type: "button", class: "link" }, text);
        button.addEventListener("click", () => action(value));
        return make("li", {}, button);
      })));
    }
    describeNode() {
      const { stage, box } = this.place(this.chosen.name);
      const node = stage.node(box);
      const { tensors } = stage.details;
      const layout = (at) => (tensors[at].facts.find(([what]) => what.startsWith("layout")) || ["", ""])[1];
      const named = (list) => list.map((at) => [`${tensors[at].name} ${layout(at)}`.trim(), at]);
      const choose = (at) => this.choose({ tensor: tensors[at].name, index: at });
      this.panel.append(make("h3", {}, node.name), this.facts(node.facts));
      this.links("reads", named(node.reads), choose);
      this.links("writes", named(node.writes), choose);
      if (node.operators) this.links("carries out", node.operators.map((name) => [name, name]), (name) => this.go(name));
      if (node.source)
        this.panel.append(make("details", {}, make("summary", {}, "source of the kernel"), make("pre", { tabindex: "0" }, node.source)));
      this.rowLinks();
    }
    describeTensor() {
      const of = (stage) => stage.details.tensors.filter((tensor) => tensor.name === this.chosen.tensor);
      const shown = of(this.shown)[0] || this.stages.map((stage) => of(stage)[0]).find((tensor) => tensor);
      this.panel.append(make("h3", {}, this.chosen.tensor), ...of(this.shown).length ? of(this.shown).map((t) => this.facts(t.facts)) : [this.facts(shown.facts)]);
      const users = (key) => this.stages.filter((stage) => stage.step === this.shown.step).flatMap((stage) => stage.details.nodes
        .filter((node) => node[key]?.some((at) => stage.details.tensors[at].name === this.chosen.tensor)).map((node) => [node.name, node.name]));
      this.links("written by", users("writes"), (name) => this.go(name));
      this.links("read by", users("reads"), (name) => this.go(name));
      this.rowLinks();
    }

    // Marks the rows of tables that show the same thing, and adds buttons to them that lead here.
    tables() {
      this.rows = new Map();
      for (const id of ["launches", "path", "operators", "layouts", "traffic", "buffers"]) {
        const table = document.getElementById("table_" + id);
        for (const row of table ? table.tBodies[0].rows : []) {
          const cell = row.cells[0];
          const name = cell.firstChild ? cell.firstChild.textContent : "";
          const isTensor = ["layouts", "traffic", "buffers"].includes(id);
          const key = (isTensor ? "tensor " : "piece ") + name;
          this.rows.set(key, [...this.rows.get(key) || [], { row, id }]);
          const button = make("button", { type: "button", class: "link", title: "show in the graph" }, name);
          cell.firstChild?.replaceWith(button);
          button.addEventListener("click", () => this.fromRow(isTensor, name));
        }
      }
    }
    fromRow(isTensor, name) {
      if (!isTensor) this.go(name);
      else this.choose({ tensor: name });
      const line = isTensor && this.shown.svg.querySelector(".chosen");
      if (line) this.shown.show(line);
      this.root.scrollIntoView({ block: "start" });
    }
    ofChosen() {
      if (!this.chosen) return [];
      return this.rows.get(this.chosen.name !== undefined ? "piece " + this.chosen.name : "tensor " + this.chosen.tensor) || [];
    }
    markRows() {
      for (const row of document.querySelectorAll("tr.chosen")) row.classList.remove("chosen");
      for (const { row } of this.ofChosen()) row.classList.add("chosen");
    }
    rowLinks() {
      const titles = { launches: "time and limits", path: "selected candidate", operators: "the operator alone", layouts: "why this layout", traffic: "bytes moved", buffers: "buffer" };
      this.links("in the tables", this.ofChosen().map(({ row, id }) => [titles[id], row]), (row) => {
        for (let at = row; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
        row.scrollIntoView({ block: "center" });
        row.querySelector("button")?.focus({ preventScroll: true });
      });
    }
  }
  for (const root of document.querySelectorAll(".viewer")) if (root.querySelector("figure")) new Viewer(root);
})();
