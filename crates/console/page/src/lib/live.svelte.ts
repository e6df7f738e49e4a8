// What the page knows of the cluster, how old that is, and whether it is logged in.

import { ask, Refused, sentence } from './api';
import type { Overview } from './types';

const EVERY_MS = 2_000;
/** Age at which knowledge counts as old. */
const OLD_MS = 8_000;

/** Counts looks: the result begins one, and its result tells whether that is still the newest. So an answer that was asked
    for before an order never takes the place of one that was asked for after it. */
export function looks(): () => () => boolean {
  let newest = 0;
  return () => {
    const own = (newest += 1);
    return () => own === newest;
  };
}

class Live {
  overview = $state.raw<Overview | null>(null);
  /** None while that is not known yet. */
  isIn = $state<boolean | null>(null);
  /** Why the last request got no answer. */
  failure = $state<string | null>(null);
  /** When the answer came, by this browser's clock, in milliseconds. */
  heardAt = $state(0);
  now = $state(performance.now());

  /** Milliseconds since the coordinator said what is shown. */
  get ageMs(): number {
    return this.overview ? this.overview.age_ms + Math.max(0, this.now - this.heardAt) : 0;
  }

  /** Why what is shown is old; none while it is not. */
  get lost(): string | null {
    if (this.failure) return this.failure;
    if (this.overview?.stale_because) return this.overview.stale_because;
    return this.ageMs > OLD_MS ? 'there is no newer answer' : null;
  }

  #begin = looks();

  async look(): Promise<void> {
    const isNewest = this.#begin();
    try {
      const overview = await ask<Overview>('overview');
      if (!isNewest()) return;
      this.overview = overview;
      this.heardAt = performance.now();
      this.failure = null;
      this.isIn = true;
    } catch (error) {
      if (!isNewest()) return;
      if (error instanceof Refused && error.status === 401) {
        this.isIn = false;
        this.overview = null;
      } else {
        this.failure = sentence(error);
        this.isIn ??= true;
      }
    }
    this.now = performance.now();
  }
}

export const live = new Live();

/** Calls a function now and again while the page is visible, one call at a time, until the result is called. */
export function repeat(look: () => Promise<void>, everyMs = EVERY_MS): () => void {
  let isOver = false;
  let isLooking = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const turn = async () => {
    if (isLooking || isOver) return;
    clearTimeout(timer);
    isLooking = true;
    if (!document.hidden) await look();
    isLooking = false;
    if (!isOver) timer = setTimeout(turn, everyMs);
  };
  const wake = () => {
    if (!document.hidden) void turn();
  };
  document.addEventListener('visibilitychange', wake);
  void turn();
  return () => {
    isOver = true;
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', wake);
  };
}
