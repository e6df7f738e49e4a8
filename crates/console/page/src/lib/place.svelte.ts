// Which view is shown: the part of the address behind the #, so that the browser's buttons and bookmarks work.

class Place {
  view = $state('overview');
  parameters = $state.raw(new URLSearchParams());

  read(): void {
    const [view = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?');
    this.view = view || 'overview';
    this.parameters = new URLSearchParams(query);
  }

  get(name: string): string | null {
    return this.parameters.get(name);
  }
}

export const place = new Place();
place.read();
addEventListener('hashchange', () => place.read());

export function link(view: string, parameters: Record<string, string | number> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) query.set(name, String(value));
  return query.size > 0 ? `#/${view}?${query}` : `#/${view}`;
}
