// Elements. Names from the trace become text nodes and nothing else: no HTML is ever parsed from them.

type Child = Node | string | null | false;
interface Attributes {
  class?: string;
  id?: string;
  title?: string;
  href?: string;
  [name: `aria-${string}` | `data-${string}`]: string;
  role?: string;
  tabindex?: string;
  type?: string;
  scope?: string;
  for?: string;
  rows?: string;
  spellcheck?: string;
  autocomplete?: string;
  placeholder?: string;
}

/** An element with children. */
export function el<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
  for (const child of children) if (child) element.append(child);
  return element;
}

/** What would steer the direction of text, or is not seen, is shown as its number. */
export function plain(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (c) =>
    c === "\n" ? "⏎" : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** A button. */
export function button(text: string, click: () => void, label?: string): HTMLButtonElement {
  const element = el("button", { type: "button", ...(label ? { "aria-label": label, title: label } : {}) }, text);
  element.addEventListener("click", click);
  return element;
}

/** A choice, with its label. */
export function choice(label: string, options: string[], change: (place: number) => void): { element: HTMLElement; select: HTMLSelectElement } {
  const select = el("select", {}, ...options.map((o) => el("option", {}, plain(o))));
  select.addEventListener("change", () => change(select.selectedIndex));
  return { element: el("label", { class: "choice" }, label, " ", select), select };
}

/** A table; columns that begin with `#` are numbers. */
export function table(caption: string, columns: string[], rows: (string | Node)[][]): HTMLElement {
  const numeric = columns.map((c) => c.startsWith("#"));
  const cls = (i: number) => (numeric[i] ? { class: "number" } : {});
  const head = el("tr", {}, ...columns.map((c, i) => el("th", { scope: "col", ...cls(i) }, c.replace(/^#/, ""))));
  const body = rows.map((row) => el("tr", {}, ...row.map((cell, i) => el("td", cls(i), typeof cell === "string" ? plain(cell) : cell))));
  const whole = el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, ...body));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, whole);
}

/** A canvas as wide as its place, sharp on every screen. `draw` gets the size in CSS pixels. */
export function canvas(label: string, height: number, draw: (context: CanvasRenderingContext2D, width: number, height: number) => void) {
  const element = el("canvas", { tabindex: "0", role: "img", "aria-label": label });
  const redraw = () => {
    const width = element.clientWidth;
    if (width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    const context = element.getContext("2d");
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  };
  element.style.height = `${height}px`;
  new ResizeObserver(redraw).observe(element);
  return { element, redraw };
}

/** A colour of style.css, as it is now: light or dark. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
