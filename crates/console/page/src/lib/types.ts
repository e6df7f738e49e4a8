// The API's answers, as /api/v1/openapi.json describes them.

export type State = 'up' | 'suspect' | 'failed' | 'joining' | 'draining' | 'drained';

export interface Age {
  age_ms: number;
  stale_because: string | null;
}

export interface Space {
  capacity_bytes: number;
  free_bytes: number;
  used_percent: number;
  full: boolean;
}

export interface Node {
  node: number;
  rack: number;
  address: string;
  state: State;
  space: Space | null;
  heard_ms_ago: number | null;
}

export interface Nodes extends Age {
  nodes: Node[];
}

export interface Cell {
  node: number;
  state: State;
  used_percent: number | null;
}

export interface Rack {
  rack: number;
  by_state: Partial<Record<State, number>>;
  capacity_bytes: number;
  free_bytes: number;
  fullest_percent: number | null;
  nodes: Cell[] | null;
}

export interface Limits {
  node_bytes_per_s: number | null;
  rack_bytes_per_s: number | null;
  total_bytes_per_s: number | null;
  guard_bytes_per_s: number | null;
  p99_target_ms: number | null;
}

export interface Repair {
  light: string;
  lost_chunks: number;
  chunks_to_make: number;
  chunks_to_move: number;
  left_bytes: number;
  stripes_at_work: number;
  bytes_per_s: number;
  rest_ms: number | null;
  paused: boolean;
  scheme: string;
  limits: Limits;
  p99_ms: number | null;
  made_chunks: number;
  made_bytes: number;
  moved_chunks: number;
  moved_bytes: number;
  caught_up_chunks: number;
  caught_up_bytes: number;
  planned_cross_rack_bytes: number;
  sent_by_racks: { from_rack: number; to_rack: number; bytes: number }[];
  last_error: string | null;
}

export interface Overview extends Age {
  light: 'green' | 'yellow' | 'red' | 'unknown';
  troubles: string[];
  signs: string[];
  heard_at_most_ms_ago: number | null;
  node_count: number;
  unwell: Node[];
  racks: Rack[];
  stripes_by_failures_left: Record<string, number>;
  at_risk: Record<string, number>;
  appending_stripes: number;
  unreachable_chunks: number;
  repair: Repair;
}

export interface LinkBytes {
  planned: number;
  metered: number;
  repair: number;
  other: number;
}

export interface RackLink {
  from_rack: number;
  to_rack: number;
  bytes: LinkBytes;
  bytes_per_s: LinkBytes | null;
}

export interface Traffic extends Age {
  updates_per_s: number | null;
  read_parts_per_s: number | null;
  cross_rack: { purpose: string; planned_bytes_per_s: number; metered_bytes_per_s: number }[];
  links: RackLink[];
  unknown_of: number[];
}

export interface Event {
  number: number;
  time: string;
  kind: string;
  warning: boolean;
  node: number | null;
  stripe: number | null;
  sentence: string;
}

export interface Pool {
  name: string;
  code: string;
  survive: string;
  chunk_bytes: number;
  update: string;
  usable_share: number;
  share_of_three_replicas: number;
  chunk_writes_per_update: number;
  encode_after: string | null;
  files: number;
  logical_bytes: number;
  raw_bytes: number;
  reserved_bytes: number;
  used_bytes: number;
  quota_bytes: number | null;
  quota_files: number | null;
}

export interface Entry {
  name: string;
  bytes: number | null;
  stripes: number | null;
  symlink: boolean;
}

export interface FilePage {
  entries: Entry[];
  next: string | null;
}

export interface Stripe {
  stripe: number;
  offset: number;
  chunk_bytes: number;
  generation: number;
  nodes: number[];
  lost_chunks: number[];
  failures_left: number;
  appending: boolean;
}

export interface StoredFile {
  name: string;
  bytes: number;
  pool: string;
  code: string;
  data_chunks: number;
  inline_bytes: number;
  survive: string;
  stripes: Stripe[];
  racks: Record<string, number>;
  next: number | null;
}

export interface Explained {
  offset: number;
  pool: string;
  code: string;
  stripe: number;
  stripe_offset: number;
  chunk: number;
  chunk_offset: number;
  chunks: {
    chunk: number;
    holds: string;
    node: number | null;
    rack: number | null;
    address: string | null;
    state: string;
  }[];
  failures_left: number;
  update_cross_rack_bytes: number | null;
  update_inner_rack_bytes: number | null;
  read: string;
  redundancy: string;
}

export interface Plan {
  title: string;
  code: string;
  cost: {
    cross_rack_bytes: number;
    inner_rack_bytes: number;
    client_bytes: number;
    read_bytes: number;
    write_bytes: number;
    read_count: number;
    write_count: number;
  };
  steps: {
    node: number | null;
    rack: number | null;
    verb: string;
    object: string;
    uses: { step: number; coefficient: number; sent_bytes: number; crosses_racks: boolean }[];
  }[];
}
