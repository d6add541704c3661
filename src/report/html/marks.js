// Shows by keyboard what pointing shows: Tab reaches a picture, the arrow keys go through its marks, Escape leaves
// them. The tip is a status, which screen readers read aloud.
const Marks = (() => {
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity,
    End: Infinity };
  const current = new Map();  // the mark of each picture
  const leave = (svg) => {
    current.get(svg)?.classList.remove("current");
    Tip.hide();
  };
  const enter = (svg, mark) => {
    leave(svg);
    current.set(svg, mark);
    mark.classList.add("current");
    const moved = new CustomEvent("mark", { bubbles: true, detail: mark });
    if (svg.dispatchEvent(moved)) mark.scrollIntoView({ block: "nearest", inline: "nearest" });
    Tip.showAt(mark);
  };
  const marks = (svg) => [...svg.querySelectorAll("[data-tip]")];
  const go = (svg, by) => {
    const all = marks(svg);
    const at = all.indexOf(current.get(svg));
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(at + by, all.length - 1));
    enter(svg, all[next]);
  };
  const help = make("p", { id: "marks_help", hidden: "" },
    "The arrow keys go through the marks of this picture and read them out; Escape leaves it.");
  document.body.append(help);
  for (const svg of document.querySelectorAll("figure svg[role=img]")) {
    if (!svg.querySelector("[data-tip]")) continue;
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "application");
    svg.setAttribute("aria-roledescription", "picture");
    svg.setAttribute("aria-describedby", help.id);
    svg.addEventListener("blur", () => leave(svg));
    svg.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") leave(svg);
      if (!(event.key in steps)) return;
      event.preventDefault();
      go(svg, steps[event.key]);
    });
  }
  return { current: (svg) => current.get(svg) };
})();
