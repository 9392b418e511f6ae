// Where the time went: stacked bars, a bar for each row of the timeline, exclusive time by layer.
import uPlot from "uplot";
import type { Data } from "../data";
import { choice, colour, el, plain, table } from "../dom";
import { pictures, type View } from "../view";
import { percent, time, timeMarks } from "../words";

export function layers(data: Data, view: View): HTMLElement {
  const rows = data.time;
  const used = data.layers.map((_, l) => l).filter((l) => rows.some((row) => row.layers[l] > 0));
  if (used.length === 0) return el("p", {}, "The trace has no records: no time to show.");
  const sums = rows.map((row) => row.layers.reduce((a, b) => a + b, 0));
  const place = el("div", { class: "plot" });
  const detail = el("p", { class: "small", role: "status" });
  let shares = false;
  let plot: uPlot | null = null;
  let focused: number | null = null;

  const tell = (r: number | null | undefined) => {
    const row = typeof r === "number" ? rows[r] : undefined;
    detail.textContent = row
      ? `${plain(row.name)}: ${time(sums[r as number])}. ${used
          .filter((l) => row.layers[l] > 0)
          .map((l) => `${data.layers[l]} ${time(row.layers[l])} (${percent(row.layers[l] / sums[r as number])})`)
          .join(", ")}`
      : "Point at a bar to read its figures; the table has all.";
  };

  const draw = () => {
    plot?.destroy();
    const width = place.clientWidth;
    if (width === 0) return;
    // Each layer's bar reaches from the bottom to its upper edge; the later ones cover the lower part of those before.
    let below = rows.map(() => 0);
    const edges = used.map((l) => {
      below = below.map((sum, r) => sum + (shares ? rows[r].layers[l] / Math.max(sums[r], 1) : rows[r].layers[l] / 1e9));
      return below;
    });
    const bars = uPlot.paths.bars?.({ size: [0.8, 80] });
    const text = colour("text");
    const grid = { stroke: colour("line"), width: 1 };
    const series = used
      .map((l, i) => ({ label: data.layers[l], fill: colour(`layer-${data.layers[l]}`), stroke: colour("page"), width: 1, paths: bars, points: { show: false }, values: edges[i] }))
      .reverse();
    plot = new uPlot(
      {
        width,
        height: 380,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { show: false } },
        scales: { x: { time: false, range: [-0.6, rows.length - 0.4] }, y: { range: (_, _low, high) => [0, shares ? 1 : Math.max(high * 1.05, 1e-9)] } },
        axes: [
          {
            stroke: text,
            grid: { show: false },
            font: "14px system-ui, sans-serif",
            splits: () => rows.map((_, r) => r).filter((r) => r % Math.ceil((rows.length * 90) / width) === 0),
            values: (_, at) => at.map((r) => plain(rows[r]?.name ?? "").slice(0, 14)),
          },
          { stroke: text, grid, size: 90, font: "14px system-ui, sans-serif", values: (_, at, _axis, _space, step) => (shares ? at.map(percent) : timeMarks(at.map((v) => v * 1e9), step * 1e9, Math.max(...sums) * 1.05)) },
        ],
        series: [{}, ...series.map(({ values: _, ...s }) => s)],
        hooks: { setCursor: [(u) => tell(u.cursor.idx)] },
      },
      [rows.map((_, r) => r), ...series.map((s) => s.values)],
      place,
    );
    tell(focused);
  };
  const unit = choice("Bars show", ["time", "shares"], (i) => {
    shares = i === 1;
    draw();
  });
  new ResizeObserver(draw).observe(place);
  view.listen(draw);
  pictures.set("time", (focus) => {
    focused = focus;
    tell(focus);
  });
  const legend = el("p", { class: "legend" }, ...used.map((l) => el("span", {}, el("i", { class: `swatch layer-${data.layers[l]}` }), data.layers[l])));
  const figures = table(
    "Exclusive time by row and layer",
    ["row", ...used.map((l) => `#${data.layers[l]}`), "#all"],
    rows.map((row, r) => [row.name, ...used.map((l) => time(row.layers[l])), time(sums[r])]),
  );
  return el(
    "div",
    {},
    el("p", {}, "Exclusive time: a call's time in which nothing below it ran. Layers stand from the program (bottom) to the devices (top). Requests that run side by side count each, so a bar may be longer than the run."),
    el("div", { class: "tools" }, unit.element, legend),
    place,
    detail,
    el("details", {}, el("summary", {}, "Table"), figures),
  );
}
