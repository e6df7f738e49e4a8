// Orders of a view, and why the last one was refused: that stays until the next order, or until it is dismissed.

import { Refused, sentence, tell } from './api';
import { live } from './live.svelte';

export class Orders {
  problem = $state('');
  isBusy = $state(false);

  /** Gives an order, and tells whether it was carried out. */
  async give(method: 'POST' | 'PATCH', path: string, body?: unknown): Promise<boolean> {
    this.isBusy = true;
    this.problem = '';
    try {
      await tell(method, path, body);
      void live.look();
    } catch (error) {
      const unknown = error instanceof Refused ? '' : ' It is unknown whether the order was carried out.';
      this.problem = sentence(error) + unknown;
    }
    this.isBusy = false;
    return this.problem === '';
  }
}
