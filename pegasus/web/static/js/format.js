// Numbers, times and amounts as people read them, in the language of the browser.

import { T } from "./texts.js";

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const precise = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const date = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const short = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const whole = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const ago = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });

export const clockTime = (ms) => clock.format(ms);
export const fullTime = (ms) => precise.format(ms);
export const shortDay = (ms) => short.format(ms);
export const count = (number) => whole.format(number);
export const tokens = (number) => (number < 10000 ? whole.format(number) : compact.format(number));

/** "Today", "Yesterday", or the date. */
export function dayName(ms) {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(ms).setHours(0, 0, 0, 0)) / 86400000);
  if (days === 0) return T.today;
  return days === 1 ? T.yesterday : date.format(ms);
}

/** A span of time: 340 ms, 8.2 s, 2:05, 1:02:09. */
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  const seconds = Math.round(ms / 1000);
  const rest = String(seconds % 60).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

/** A span that somebody has chosen, in its largest whole unit: 15 min, 2 h. */
export function roundSpan(seconds) {
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const [unit, size] = units.find(([, each]) => seconds % each === 0) ?? units.at(-1);
  return new Intl.NumberFormat(undefined, { style: "unit", unit, unitDisplay: "long" }).format(seconds / size);
}

/** How long ago, or until: "3 minutes ago", "in 2 hours". */
export function fromNow(ms) {
  const seconds = (ms - Date.now()) / 1000;
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  for (const [unit, size] of units) if (Math.abs(seconds) >= size) return ago.format(Math.round(seconds / size), unit);
  return ago.format(Math.round(seconds), "second");
}

export function bytes(size) {
  if (size < 1000) return `${size} B`;
  return size < 1e6 ? `${(size / 1000).toFixed(size < 1e4 ? 1 : 0)} kB` : `${(size / 1e6).toFixed(1)} MB`;
}

/** Dollars, with more digits below ten cents. */
export function dollars(cost) {
  if (!cost) return "$0";
  return cost >= 0.1 ? `$${cost.toFixed(2)}` : cost >= 0.0001 ? `$${cost.toFixed(4)}` : "< $0.0001";
}
