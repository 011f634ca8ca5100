// Times in the person's own zone, and clocks that tick without being announced.
import { $$ } from "./page.js";

// English as the server writes it: the day before the month.
const language = { "": "en-GB", en: "en-GB" }[document.documentElement.lang] ?? document.documentElement.lang;
const clock = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const weekday = new Intl.DateTimeFormat(language, { weekday: "short" });
const day = new Intl.DateTimeFormat(language, { day: "numeric", month: "short" });

function dayNumber(date) { return Math.floor((date.getTime() - date.getTimezoneOffset() * 60000) / 86400000); }

function wordsFor(at, form) {
  const age = dayNumber(new Date()) - dayNumber(at);
  if (age <= 0) return clock.format(at);
  if (form === "list") return age === 1 ? clock.format(at) : age < 7 ? weekday.format(at) : day.format(at);
  return `${age < 7 ? weekday.format(at) : day.format(at)} ${clock.format(at)}`;
}

// Corrects what the server wrote in another zone; times that begin with a word are left.
export function localise(from) {
  for (const time of $$("time[data-time]", from)) {
    if (time.dataset.time === "day") continue;
    const at = new Date(time.dateTime);
    const told = wordsFor(at, time.dataset.time);
    if (time.textContent !== told) time.textContent = told;
    time.title = at.toLocaleString(language);
  }
  tick(from);
}

function lapse(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(whole / 60);
  const rest = String(whole % 60).padStart(2, "0");
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

export function tick(from = document) {
  const now = Date.now();
  for (const time of $$("time[data-since]", from)) time.textContent = lapse((now - Date.parse(time.dataset.since)) / 1000);
  for (const time of $$("time[data-until]", from)) time.textContent = lapse((Date.parse(time.dataset.until) - now) / 1000);
}

export function clocks() {
  localise(document);
  setInterval(() => { if (!document.hidden) tick(); }, 1000);
}
