// The drawing of a plan: a lane for each node, lanes of a rack together, steps from left to right as they follow.

import type { Plan } from './types';

export interface Box {
  at: number;
  x: number;
  y: number;
  lines: string[];
}

export interface Arrow {
  path: string;
  label: string;
  x: number;
  y: number;
  crosses: boolean;
}

export interface Band {
  label: string;
  y: number;
  height: number;
  lanes: { label: string; y: number }[];
}

export interface Drawing {
  width: number;
  height: number;
  boxes: Box[];
  arrows: Arrow[];
  bands: Band[];
}

export const BOX_WIDTH = 146;
export const BOX_HEIGHT = 40;
const GAP = 76;
const COLUMN = BOX_WIDTH + GAP;
const ROW = BOX_HEIGHT + 12;
const LEFT = 84;

/** Cuts a text so that it fits into a box. */
const fit = (text: string) => (text.length > 20 ? `${text.slice(0, 19)}…` : text);

export function draw(plan: Plan, amount: (bytes: number) => string): Drawing {
  const depth: number[] = [];
  for (const [at, step] of plan.steps.entries()) {
    depth[at] = Math.max(0, ...step.uses.map((use) => (depth[use.step] ?? 0) + 1));
  }
  const key = (step: Plan['steps'][number]) => `${step.rack ?? 'x'} ${step.node ?? 'x'}`;
  const lanes = new Map<string, { rack: number | null; node: number | null; rows: Map<number, number>; used: number }>();
  const row: number[] = [];
  for (const [at, step] of plan.steps.entries()) {
    const lane = lanes.get(key(step)) ?? { rack: step.rack, node: step.node, rows: new Map(), used: 1 };
    const taken = lane.rows.get(depth[at] ?? 0) ?? 0;
    row[at] = taken;
    lane.rows.set(depth[at] ?? 0, taken + 1);
    lane.used = Math.max(lane.used, taken + 1);
    lanes.set(key(step), lane);
  }
  const order = [...lanes.entries()].sort(
    ([, a], [, b]) => (a.rack ?? Infinity) - (b.rack ?? Infinity) || (a.node ?? Infinity) - (b.node ?? Infinity),
  );
  const tops = new Map<string, number>();
  const bands: Band[] = [];
  let y = 0;
  let rack: number | null | undefined;
  for (const [name, lane] of order) {
    if (lane.rack !== rack || bands.length === 0) {
      y += bands.length === 0 ? 0 : 10;
      bands.push({ label: lane.rack === null ? 'client' : `rack ${lane.rack}`, y, height: 8, lanes: [] });
      rack = lane.rack;
      y += 8;
    }
    tops.set(name, y);
    bands.at(-1)?.lanes.push({ label: lane.node === null ? '' : `node ${lane.node}`, y: y + BOX_HEIGHT / 2 });
    y += lane.used * ROW;
    const band = bands.at(-1);
    if (band) band.height = y - band.y;
  }
  const boxes = plan.steps.map((step, at) => ({
    at,
    x: LEFT + (depth[at] ?? 0) * COLUMN,
    y: (tops.get(key(step)) ?? 0) + (row[at] ?? 0) * ROW,
    lines: [`#${at} ${step.verb === 'send' ? 'receive' : step.verb}`, fit(step.verb === 'send' ? '' : step.object)],
  }));
  const arrows = plan.steps.flatMap((step, at) =>
    step.uses.map((use) => {
      const [from, to] = [boxes[use.step], boxes[at]];
      const [x0, y0] = [(from?.x ?? 0) + BOX_WIDTH, (from?.y ?? 0) + BOX_HEIGHT / 2];
      const [x1, y1] = [to?.x ?? 0, (to?.y ?? 0) + BOX_HEIGHT / 2];
      const bend = Math.max(30, (x1 - x0) / 2);
      const label = use.sent_bytes > 0 ? amount(use.sent_bytes) : use.coefficient !== 1 ? `× ${use.coefficient}` : '';
      return {
        path: `M${x0} ${y0} C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`,
        label,
        // At the end of what moves, and at the begin of what is multiplied, of which several end together.
        x: use.sent_bytes > 0 ? x1 - 36 : x0 + 22,
        y: (use.sent_bytes > 0 ? y1 : y0) - 5,
        crosses: use.crosses_racks,
      };
    }),
  );
  const width = LEFT + (Math.max(0, ...depth) + 1) * COLUMN - GAP + 10;
  return { width, height: y, boxes, arrows, bands };
}
