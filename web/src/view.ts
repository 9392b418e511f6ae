// What all pictures share: the time range that is shown, the theme, and which picture a finding points to.

import { timeMarks } from "./words";

type Range = { from: number; to: number };
type Listener = () => void;

/** The time range, with those who draw it. */
export class View {
  range: Range;
  private readonly listeners: Listener[] = [];

  constructor(readonly end: number) {
    this.range = { from: 0, to: end };
  }

  /** `redraw` is called when range or theme change. */
  listen(redraw: Listener): void {
    this.listeners.push(redraw);
  }

  /** Shows [from, to), at least 10 ns of it. */
  show(from: number, to: number): void {
    const length = Math.min(Math.max(to - from, 10), this.end);
    from = Math.max(0, Math.min(from, this.end - length));
    if (from === this.range.from && from + length === this.range.to) return;
    this.range = { from, to: from + length };
    this.redraw();
  }

  /** Zooms by a factor around a place; below 1 is closer. */
  zoom(factor: number, around = (this.range.from + this.range.to) / 2): void {
    const { from, to } = this.range;
    this.show(around - (around - from) * factor, around + (to - around) * factor);
  }

  /** Moves by a share of what is shown. */
  move(share: number): void {
    const { from, to } = this.range;
    const step = (to - from) * share;
    const kept = Math.max(-from, Math.min(step, this.end - to));
    this.show(from + kept, to + kept);
  }

  whole(): void {
    this.show(0, this.end);
  }

  redraw(): void {
    for (const redraw of this.listeners) redraw();
  }
}

/** Which picture shows what: called with the row or file that a finding means. */
export const pictures = new Map<string, (focus: number | null) => void>();

/** Goes to a picture. */
export function goTo(picture: string, focus: number | null): void {
  pictures.get(picture)?.(focus);
  const section = document.getElementById(picture);
  section?.scrollIntoView({ block: "start" });
  section?.querySelector("h2")?.focus({ preventScroll: true });
}

/** Times of round distance in a range, each with its words. */
export function ticks(from: number, to: number, most: number): { at: number; text: string }[] {
  const raw = (to - from) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= raw) ?? raw;
  const at: number[] = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) at.push(t);
  const texts = timeMarks(at, step, to);
  return at.map((t, i) => ({ at: t, text: texts[i] }));
}

/** Zoom by keys and mouse on a picture whose time begins at `left` pixels. `click` gets the time and the y of a click. */
export function navigate(element: HTMLElement, view: View, left: number, click?: (at: number, y: number) => void): void {
  const at = (event: MouseEvent) => {
    const box = element.getBoundingClientRect();
    const share = (event.clientX - box.left - left) / Math.max(box.width - left, 1);
    const { from, to } = view.range;
    return from + Math.max(0, Math.min(share, 1)) * (to - from);
  };
  let start: { at: number; x: number } | null = null;
  const mark = document.createElement("div");
  mark.className = "drag";
  element.parentElement?.append(mark);
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = { at: at(event), x: event.clientX };
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (!start) return;
    const box = element.getBoundingClientRect();
    const [a, b] = [Math.min(start.x, event.clientX), Math.max(start.x, event.clientX)];
    mark.style.display = b - a > 4 ? "block" : "none";
    mark.style.left = `${Math.max(a - box.left, left)}px`;
    mark.style.width = `${Math.min(b, box.right) - Math.max(a, box.left + left)}px`;
  });
  element.addEventListener("pointerup", (event) => {
    mark.style.display = "none";
    if (!start) return;
    const [from, to] = [Math.min(start.at, at(event)), Math.max(start.at, at(event))];
    const dragged = Math.abs(event.clientX - start.x) > 4;
    start = null;
    if (dragged) view.show(from, to);
    else click?.(from, event.clientY - element.getBoundingClientRect().top);
  });
  element.addEventListener("pointercancel", () => {
    start = null;
    mark.style.display = "none";
  });
  element.addEventListener("dblclick", () => view.whole());
  element.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      view.zoom(event.deltaY < 0 ? 0.8 : 1.25, at(event));
    },
    { passive: false },
  );
  element.addEventListener("keydown", (event) => {
    const keys: Record<string, () => void> = {
      "+": () => view.zoom(0.5),
      "=": () => view.zoom(0.5),
      "-": () => view.zoom(2),
      "0": () => view.whole(),
      Home: () => view.whole(),
      ArrowLeft: () => view.move(-0.25),
      ArrowRight: () => view.move(0.25),
    };
    const action = event.ctrlKey || event.altKey || event.metaKey ? undefined : keys[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
}
