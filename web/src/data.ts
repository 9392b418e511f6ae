// The data of the page, as crates/analysis/src/report/data.rs writes it. Times are nanoseconds since the first record.

export type Level = "high" | "minor" | "fine" | "unknown";

export interface Finding {
  id: string;
  level: Level;
  title: string;
  text: string;
  remedy: string;
  threshold: string;
  picture: string;
  focus: number | null;
}

/** Row, name of process, id, layer, name of operation, name of file, begin, duration, bytes, error, kind. */
type CallRow = [number, number, number, number, number, number, number, number, number, number, number];
/** Begin, duration, offset, bytes, 1 if written, name of process, id. */
type PointRow = [number, number, number, number, number, number, number];
/** Depth, name of part, layer, name of operation, begin, duration, exclusive, critical, bytes, offset, error, id. */
type NodeRow = [number, number, number, number, number, number, number, number, number, number, number, number];

interface Raw {
  version: number;
  /** The page comes from a server that answers questions. */
  asks: boolean;
  about: About;
  notes: string[];
  names: string[];
  layers: string[];
  axis: { width: number; bins: number };
  timeline: { kinds: string[]; rows: { name: string; processes: number; bins: number[][] }[] };
  calls: { made: number; list: CallRow[] };
  time: { name: string; layers: number[] }[];
  heat: { rows: HeatRow[]; most_bytes: number; most_queue: number };
  files: { name: string; bytes: number; accesses: number; points: PointRow[] }[];
  slow: { key: string; process: number; nodes: NodeRow[]; left_out: number; notes: string[] }[];
  decisions: { server: string; reason: string; decisions: number; bytes: number; time: number }[];
  operations: OperationRow[];
  /** Null: not known. */
  methods: MethodRow[] | null;
  findings: Finding[];
}

export interface About {
  penstock: string;
  trace: string;
  command: string;
  job: string;
  user: string;
  hosts: string;
  began: number;
  span: number;
  records: number;
  dropped: number;
  processes: number;
  servers: number;
  read: number;
  written: number;
  inside: number;
  access: string;
  unit: number;
}

export interface HeatRow {
  name: string;
  servers: number;
  from: string;
  busy: number[];
  bytes: number[];
  queue: number[];
}

export interface OperationRow {
  layer: string;
  name: string;
  collective: boolean;
  calls: number;
  bytes: number;
  errors: number;
  time: number;
  exclusive: number;
  median: number;
  most: number;
}

export interface MethodRow {
  file: string;
  direction: string;
  method: string;
  calls: number;
  bytes: number;
  operations: number;
  accessed: number;
  resent: number;
  reason: string;
}

export interface Call {
  row: number;
  process: string;
  id: number;
  layer: string;
  operation: string;
  file: string;
  begin: number;
  duration: number;
  bytes: number;
  error: number;
  /** Place in the timeline's kinds. */
  kind: number;
}

export interface Point {
  begin: number;
  duration: number;
  offset: number;
  bytes: number;
  written: boolean;
  process: string;
  id: number;
}

export interface Node {
  depth: number;
  part: string;
  layer: string;
  operation: string;
  begin: number;
  duration: number;
  exclusive: number;
  critical: number;
  bytes: number;
  offset: number;
  error: number;
  id: number;
}

export interface Slow {
  key: string;
  process: string;
  nodes: Node[];
  left_out: number;
  notes: string[];
}

export interface Data extends Omit<Raw, "calls" | "files" | "slow"> {
  calls: { made: number; list: Call[] };
  files: { name: string; bytes: number; accesses: number; points: Point[] }[];
  slow: Slow[];
  /** End of the time axis. */
  end: number;
}

/** Reads the data that stands in the page. */
export function load(): Data {
  const raw = JSON.parse(document.getElementById("data")?.textContent ?? "") as Raw;
  if (raw.version !== 1) throw new Error(`data of version ${raw.version}, and this page shows version 1`);
  const name = (place: number) => raw.names[place] ?? "";
  const layer = (place: number) => raw.layers[place] ?? "";
  const call = ([row, process, id, l, operation, file, begin, duration, bytes, error, kind]: CallRow): Call => ({
    row, process: name(process), id, layer: layer(l), operation: name(operation), file: name(file), begin, duration, bytes, error, kind,
  });
  const point = ([begin, duration, offset, bytes, written, process, id]: PointRow): Point => ({
    begin, duration, offset, bytes, written: written === 1, process: name(process), id,
  });
  const node = ([depth, part, l, operation, begin, duration, exclusive, critical, bytes, offset, error, id]: NodeRow): Node => ({
    depth, part: name(part), layer: layer(l), operation: name(operation), begin, duration, exclusive, critical, bytes, offset, error, id,
  });
  return {
    ...raw,
    calls: { made: raw.calls.made, list: raw.calls.list.map(call) },
    files: raw.files.map((file) => ({ ...file, points: file.points.map(point) })),
    slow: raw.slow.map((slow) => ({ ...slow, process: name(slow.process), nodes: slow.nodes.map(node) })),
    end: Math.max(raw.axis.width * raw.axis.bins, 1),
  };
}
