// Offsets over time of a file: each access from its first to its last byte, when it ran.
import uPlot from "uplot";
import type { Data, Point } from "../data";
import { choice, colour, el, plain } from "../dom";
import { pictures, type View } from "../view";
import { byteMarks, bytes, count, time, timeMarks } from "../words";

/** Distances of offsets on the axis: powers of two. */
const POWERS = Array.from({ length: 64 }, (_, i) => 2 ** i);

export function offsets(data: Data, view: View): HTMLElement {
  const files = data.files;
  if (files.length === 0) return el("p", {}, "The trace has no reads or writes of files.");
  const place = el("div", { class: "plot" });
  const note = el("p", { class: "small" });
  const detail = el("p", { class: "small", role: "status" });
  let chosen = 0;
  let plot: uPlot | null = null;

  const tell = (point: Point | undefined) => {
    detail.textContent = point
      ? `${plain(point.process)}, call ${point.id}: ${point.written ? "writes" : "reads"} ${bytes(point.bytes)} at ${count(point.offset)} (${bytes(point.offset)}), ${time(point.duration)} from ${time(point.begin)}`
      : "Point at an access to read its figures.";
  };
  const paint = (u: uPlot, points: Point[]) => {
    const { ctx } = u;
    const ratio = uPlot.pxRatio;
    const least = 3 * ratio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    const colours = [colour("kind-read"), colour("kind-write")];
    for (const p of points) {
      const left = u.valToPos(p.begin, "x", true);
      const right = u.valToPos(p.begin + p.duration, "x", true);
      const bottom = u.valToPos(p.offset, "y", true);
      const top = u.valToPos(p.offset + p.bytes, "y", true);
      ctx.fillStyle = colours[p.written ? 1 : 0];
      ctx.fillRect(left, Math.min(top, bottom - least), Math.max(right - left, least), Math.max(bottom - top, least));
    }
    ctx.restore();
  };
  const draw = () => {
    plot?.destroy();
    const width = place.clientWidth;
    if (width === 0) return;
    const file = files[chosen];
    const points = file.points;
    const [low, high] = points.reduce(([l, h], p) => [Math.min(l, p.offset), Math.max(h, p.offset + p.bytes)], [Infinity, 1]);
    const text = colour("text");
    const grid = { stroke: colour("line"), width: 1 };
    const font = "14px system-ui, sans-serif";
    plot = new uPlot(
      {
        width,
        height: 420,
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false } },
        scales: { x: { time: false, range: () => [view.range.from, view.range.to] }, y: { range: () => [Math.min(low, high), high] } },
        axes: [
          { stroke: text, grid, font, space: 130, values: (_, at, _axis, _space, step) => timeMarks(at, step, view.range.to) },
          { stroke: text, grid, font, size: 90, incrs: POWERS, values: (_, at, _axis, _space, step) => byteMarks(at, step, high) },
        ],
        series: [{}, { label: "offset", paths: () => null, points: { show: false } }],
        hooks: {
          draw: [(u) => paint(u, points)],
          setCursor: [
            (u) => {
              const { left, top } = u.cursor;
              if (left === undefined || top === undefined || left < 0) return tell(undefined);
              let best: Point | undefined;
              let distance = 20;
              for (const p of points) {
                const dx = Math.max(u.valToPos(p.begin, "x") - left, left - u.valToPos(p.begin + p.duration, "x"), 0);
                const dy = Math.max(u.valToPos(p.offset + p.bytes, "y") - top, top - u.valToPos(p.offset, "y"), 0);
                if (Math.hypot(dx, dy) < distance) [best, distance] = [p, Math.hypot(dx, dy)];
              }
              tell(best);
            },
          ],
          setSelect: [
            (u) => {
              if (u.select.width < 4) return;
              const [from, to] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              view.show(from, to);
            },
          ],
        },
      },
      [points.map((p) => p.begin), points.map((p) => p.offset)],
      place,
    );
    const sample = points.length < file.accesses ? `${count(points.length)} of ${count(file.accesses)} accesses, chosen evenly at random` : `All ${count(points.length)} accesses`;
    note.textContent = `${sample}; ${bytes(file.bytes)} in all. Offsets are those of layer ${data.about.access}${data.about.access === "server" ? ", in the object on its server" : ""}.`;
    tell(undefined);
  };
  const select = choice("File", files.map((f) => f.name), (i) => {
    chosen = i;
    draw();
  });
  new ResizeObserver(draw).observe(place);
  view.listen(draw);
  pictures.set("files", (focus) => {
    if (focus === null || !files[focus]) return;
    chosen = focus;
    select.select.selectedIndex = focus;
    draw();
  });
  return el(
    "div",
    {},
    el("p", {}, `The files with the most bytes (${files.length}). Lines that rise evenly are sequential; steps of rows are strided; a cloud is random.`),
    el("div", { class: "tools" }, select.element, el("span", { class: "legend" }, el("span", {}, el("i", { class: "swatch kind-read" }), "read"), el("span", {}, el("i", { class: "swatch kind-write" }), "write"))),
    place,
    note,
    detail,
  );
}
