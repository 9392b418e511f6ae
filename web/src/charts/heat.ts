// Servers over time: a row for each server, darker where it was busier.
import type { Data, HeatRow } from "../data";
import { canvas, choice, colour, el } from "../dom";
import { navigate, pictures, ticks, type View } from "../view";
import { bytes, percent, time } from "../words";

const LEFT = 150;
const AXIS = 26;
const MEASURES: ("busy" | "bytes" | "queue")[] = ["busy", "bytes", "queue"];
const FROM: Record<string, string> = { device: "its device", store: "its store", requests: "requests that clients sent it" };

/** Mixes two colours of the form #rrggbb. */
function mix(a: string, b: string, share: number): string {
  const part = (c: string, i: number) => parseInt(c.slice(1 + 2 * i, 3 + 2 * i), 16);
  const one = (i: number) => Math.round(part(a, i) + (part(b, i) - part(a, i)) * share);
  return `rgb(${one(0)} ${one(1)} ${one(2)})`;
}

export function heat(data: Data, view: View): HTMLElement {
  const rows = data.heat.rows;
  if (rows.length === 0) return el("p", {}, "The trace names no server: the run used none, or only layers above were recorded.");
  const height = Math.max(14, Math.min(34, Math.floor(420 / rows.length)));
  const { width: binWidth, bins } = data.axis;
  let measure: "busy" | "bytes" | "queue" = "busy";
  let focused: number | null = null;
  const detail = el("p", { class: "small", role: "status" }, "Point at a place to read its figures.");
  const value = (row: HeatRow, level: number) =>
    measure === "busy"
      ? `${percent(level / 255)} of the time busy (${FROM[row.from] ?? row.from})`
      : measure === "bytes"
        ? `${bytes(Math.round((level / 255) * data.heat.most_bytes))} begun`
        : `${((level / 255) * data.heat.most_queue).toFixed(2)} requests waiting on average`;

  const picture = canvas("Heat map of servers over time", rows.length * height + AXIS, (context, width, whole) => {
    const { from, to } = view.range;
    const [low, high] = [colour("heat-low"), colour("heat-high")];
    const scale = (width - LEFT) / (to - from);
    const pixels = Math.floor(width - LEFT);
    context.font = `${Math.min(15, height - 2)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    rows.forEach((row, r) => {
      const top = r * height;
      const levels = row[measure];
      // A pixel shows the highest of its bins, so that a short burst is seen from afar.
      for (let p = 0; p < pixels; p++) {
        const first = Math.floor((from + p / scale) / binWidth);
        const last = Math.max(first + 1, Math.ceil((from + (p + 1) / scale) / binWidth));
        let most = 0;
        for (let b = first; b < last && b < bins; b++) most = Math.max(most, levels[b] ?? 0);
        context.fillStyle = mix(low, high, most === 0 ? 0 : 0.12 + 0.88 * (most / 255));
        context.fillRect(LEFT + p, top, 1, height - 2);
      }
      context.fillStyle = colour("text");
      context.fillText(row.name.slice(0, 22), 4, top + height / 2, LEFT - 8);
      if (focused === r) {
        context.strokeStyle = colour("text");
        context.lineWidth = 2;
        context.strokeRect(1, top + 1, width - 2, height - 3);
      }
    });
    context.font = "14px system-ui, sans-serif";
    context.fillStyle = colour("text");
    for (const { at, text } of ticks(from, to, Math.floor((width - LEFT) / 130))) {
      const left = LEFT + (at - from) * scale + 3;
      if (left + context.measureText(text).width < width) context.fillText(text, left, whole - AXIS / 2);
    }
  });
  picture.element.addEventListener("pointermove", (event) => {
    const box = picture.element.getBoundingClientRect();
    const r = Math.floor((event.clientY - box.top) / height);
    const { from, to } = view.range;
    const at = from + ((event.clientX - box.left - LEFT) / (box.width - LEFT)) * (to - from);
    const row = rows[r];
    if (row && at >= from) detail.textContent = `${row.name} at ${time(at)}: ${value(row, row[measure][Math.floor(at / binWidth)] ?? 0)}`;
  });
  const show = choice("Show", ["busy time", "bytes", "requests waiting"], (i) => {
    measure = MEASURES[i];
    picture.redraw();
  });
  view.listen(picture.redraw);
  pictures.set("heat", (focus) => {
    focused = focus;
    picture.redraw();
  });
  const place = el("div", { class: "picture" }, picture.element);
  navigate(picture.element, view, LEFT);
  const made = rows.some((row) => row.from === "requests");
  return el(
    "div",
    {},
    el("p", {}, "Each row is a server, or several; the darker (in dark colours: the brighter), the more. All rows alike is good; one row that stands out keeps the others waiting."),
    made ? el("p", { class: "warning" }, "Parts of servers are missing in the trace: their rows are made from the requests that clients sent, with the time on the network.") : null,
    el("div", { class: "tools" }, show.element, el("span", { class: "legend" }, "less ", el("i", { class: "ramp" }), " more")),
    place,
    detail,
  );
}
