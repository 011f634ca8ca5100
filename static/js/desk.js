// The dashboard: every two seconds the server's own fragments take the place of those that differ.
// Nothing moves under the pointer or the focus, and a page that nobody sees asks for nothing.
const EVERY = 2000;
const STALE = 10000;
const OLD = 60000;

const live = document.querySelector("#live");
const word = live.querySelector("[data-live-word]");
const time = live.querySelector("[data-live-time]");
const icon = live.querySelector("[data-live-icon] use");
const button = live.querySelector("button");
let paused = false;
let asked = false;
let good = Date.now();
let timer = 0;

function show(state, symbol, text) {
  if (live.dataset.state === state && word.textContent === text) return;
  live.dataset.state = state;
  icon.setAttribute("href", `#i-${symbol}`);
  word.textContent = text;
}

function mark() {
  if (paused) show("paused", "pause", live.dataset.paused);
  else if (document.hidden) show("paused", "pause", live.dataset.hidden);
  else if (Date.now() - good > STALE) show("stale", "warn", live.dataset.stale);
  else show("live", "live", live.dataset.live);
  if (!paused && !document.hidden && Date.now() - good > OLD) {
    const verdict = document.querySelector("#verdict");
    verdict.closest(".verdict").dataset.level = "warn";
    verdict.textContent = live.dataset.old;
  }
}

// A part in use is left as it is until the pointer and the focus have gone.
function inUse(part) {
  return part.contains(document.activeElement) || part.querySelector("details[open]")
    || (part.querySelector("table") && part.matches(":hover"));
}

function take(html) {
  const fresh = new DOMParser().parseFromString(`<main>${html}</main>`, "text/html");
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const old = document.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!old || inUse(old) || same(old, part)) continue;
    old.replaceWith(document.importNode(part, true));
  }
  const now = document.querySelector("[data-part=now] time");
  if (now) time.replaceChildren(now.cloneNode(true));
}

// The token of a form differs at every answer and says nothing new.
function same(one, other) {
  return told(one) === told(other);
}

function told(part) {
  const copy = part.cloneNode(true);
  for (const token of copy.querySelectorAll("input[name=csrfmiddlewaretoken]")) token.remove();
  return copy.outerHTML;
}

async function ask() {
  if (asked || paused || document.hidden) return;
  asked = true;
  try {
    const answer = await fetch(live.dataset.url, {
      credentials: "same-origin", redirect: "manual", signal: AbortSignal.timeout(8000),
    });
    if (answer.type === "opaqueredirect" || answer.status === 403) { location.reload(); return; }
    if (answer.ok) { take(await answer.text()); good = Date.now(); }
  } catch { /* told by mark() as soon as it lasts */ } finally { asked = false; }
  mark();
}

function lapse(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
}

function tick() {
  mark();
  if (paused || document.hidden || live.dataset.state === "stale") return;
  for (const each of document.querySelectorAll("time[data-until]")) {
    each.textContent = lapse((Date.parse(each.dataset.until) - Date.now()) / 1000);
  }
}

function begin() {
  clearInterval(timer);
  timer = setInterval(ask, EVERY);
  good = Date.now();
  ask();
}

button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  button.querySelector("use").setAttribute("href", paused ? "#i-play" : "#i-pause");
  mark();
  if (!paused) begin();
});
document.addEventListener("visibilitychange", () => {
  mark();
  if (document.hidden) clearInterval(timer); else if (!paused) begin();
});
setInterval(tick, 1000);
begin();
