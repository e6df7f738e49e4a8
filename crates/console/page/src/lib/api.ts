// Requests to the console's own server, and to no other.

/** A request that was answered by a refusal. */
export class Refused extends Error {
  readonly status: number;

  constructor(status: number, sentence: string) {
    super(sentence);
    this.status = status;
  }
}

/** Longest wait for an answer. The server answers earlier, if it is there. */
const LIMIT_MS = 25_000;
/** Where the tab keeps the session's key. Unlike the cookie it is of this port alone. */
const KEY = 'key';

async function send(method: string, path: string, body?: unknown): Promise<Response> {
  const headers: Record<string, string> = { 'X-Gabion-Console': sessionStorage.getItem(KEY) ?? '1' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const answer = await fetch(`/api/v1/${path}`, {
    method,
    headers,
    body: body === undefined ? null : JSON.stringify(body),
    signal: AbortSignal.timeout(LIMIT_MS),
  });
  if (answer.ok) return answer;
  const told: unknown = await answer.json().catch(() => null);
  const sentence = told && typeof told === 'object' && 'error' in told ? String(told.error) : answer.statusText;
  throw new Refused(answer.status, sentence);
}

export async function ask<T>(path: string, parameters: Record<string, string | number | null | undefined> = {}): Promise<T> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) query.set(name, String(value));
  }
  const asked = query.size > 0 ? `${path}?${query}` : path;
  return (await send('GET', asked)).json() as Promise<T>;
}

export async function tell(method: 'POST' | 'PATCH', path: string, body?: unknown): Promise<void> {
  await send(method, path, body);
}

export async function logIn(password: string): Promise<void> {
  const begun = (await (await send('POST', 'session', { password })).json()) as { key: string };
  sessionStorage.setItem(KEY, begun.key);
}

export async function logOut(): Promise<void> {
  await send('DELETE', 'session');
  sessionStorage.removeItem(KEY);
}

export function sentence(error: unknown): string {
  if (error instanceof Refused) return error.message;
  return 'the console does not answer; is its process still running?';
}
