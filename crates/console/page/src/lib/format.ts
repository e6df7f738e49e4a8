// Figures as people read them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function rate(count: number): string {
  return `${bytes(count)}/s`;
}

export function count(number: number): string {
  return number.toLocaleString('en');
}

export function counted(number: number, one: string, many: string): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A length of time, rounded up, so that nothing is promised too early. */
export function span(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 100) return `${seconds} s`;
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.ceil(hours / 24)} days`;
}
