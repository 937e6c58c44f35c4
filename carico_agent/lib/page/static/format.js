// Numbers for people.

export const known = (value) => typeof value === "number" && Number.isFinite(value);

export function number(value, digits = 1) {
  return known(value) ? value.toFixed(digits) : "unknown";
}

export function percent(share) {
  if (!known(share)) return "unknown";
  const value = 100 * share;
  return `${value !== 0 && Math.abs(value) < 10 ? value.toFixed(1) : value.toFixed(0)} %`;
}

export function bytes(value) {
  if (!known(value)) return "unknown";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit > 0 && Math.abs(value) < 100 ? 1 : 0)} ${units[unit]}`;
}

// A share of a resource in its own unit: cores, bytes, or per cent where the whole has no size.
export function amount(resource, share, sizes) {
  if (!known(share)) return "unknown";
  const size = sizes?.[resource];
  if (resource === "cpu" && known(size)) return `${(share * size).toFixed(2)} cores`;
  if (resource === "memory" && known(size)) return bytes(share * size);
  return percent(share);
}

const NAMES = { cpu: "CPU", memory: "memory", io: "disk", network: "network" };
export const resourceName = (resource) => NAMES[resource] ?? resource;

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function seconds(value) {
  if (!known(value)) return "unknown";
  if (value < 90) return `${value.toFixed(0)} s`;
  if (value < 5400) return `${(value / 60).toFixed(0)} min`;
  return value < 172800 ? `${(value / 3600).toFixed(1)} h` : `${(value / 86400).toFixed(1)} days`;
}

// 39516 as 39,516.
export const count = (value) => value.toLocaleString("en");

export function clock(time_s) {
  return new Date(1000 * time_s).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}
