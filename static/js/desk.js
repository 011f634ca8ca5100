// The dashboard: the server's own fragments take the place of those that differ. They come over a
// socket that is told to pause while nobody looks. Where none comes through, the page asks every
// two seconds. Nothing moves under the pointer or the focus.
const EVERY = 2000;
const STALE = 10000;
const OLD = 60000;
const GIVE_UP = 25000; // a socket that says nothing for so long is dead
const LONGEST = 60000; // between two tries
const GONE = [4401, 4403]; // signed out; may not look any more

const live = document.querySelector("#live");
const word = live.querySelector("[data-live-word]");
const time = live.querySelector("[data-live-time]");
const icon = live.querySelector("[data-live-icon] use");
const button = live.querySelector("button");
let paused = false;
let asked = false;
let good = Date.now();
let socket = null;
let opened = 0;
let tries = 0;
let next = 0; // when a socket is tried again
const waiting = new Map(); // parts that came while they were in use

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
  for (const part of fresh.querySelectorAll("[data-part]")) waiting.set(part.dataset.part, part);
  good = Date.now();
  put();
}

// What waits is put in its place as soon as that is not in use.
function put() {
  for (const [name, part] of waiting) {
    const old = document.querySelector(`[data-part="${name}"]`);
    if (old && inUse(old)) continue;
    waiting.delete(name);
    if (!old || same(old, part)) continue;
    const made = document.importNode(part, true);
    for (const token of tokens(made)) token.value = live.dataset.token;
    old.replaceWith(made);
  }
  const now = document.querySelector("[data-part=now] time");
  if (now) time.replaceChildren(now.cloneNode(true));
}

function tokens(part) {
  return part.querySelectorAll("input[name=csrfmiddlewaretoken]");
}

// The token of a form says nothing new; a part that many share comes without one.
function same(one, other) {
  return told(one) === told(other);
}

function told(part) {
  const copy = part.cloneNode(true);
  for (const token of tokens(copy)) token.remove();
  return copy.outerHTML;
}

function isLooking() {
  return !paused && !document.hidden;
}

function isOpen() {
  return socket?.readyState === WebSocket.OPEN;
}

function say(frame) {
  if (isOpen()) socket.send(JSON.stringify(frame));
}

function connect() {
  const mine = new WebSocket(`${location.origin.replace(/^http/, "ws")}${live.dataset.socket}`);
  let pause = 0;
  let isLast = false;
  socket = mine;
  next = Infinity;
  mine.addEventListener("open", () => {
    opened = Date.now();
    say({ type: "watch", range: live.dataset.range, zone: live.dataset.zone });
    if (!isLooking()) say({ type: "pause" });
  });
  mine.addEventListener("message", (event) => {
    const frame = JSON.parse(event.data);
    if (frame.type === "bye") {
      pause = (frame.retry_after ?? 0) * 1000;
      isLast = GONE.includes(frame.code);
    } else if (frame.type === "parts") {
      tries = 0;
      take(Object.values(frame.parts).join(""));
      mark();
    }
  });
  mine.addEventListener("close", () => {
    if (socket !== mine) return;
    socket = null;
    if (isLast) { location.reload(); return; }
    tries += 1;
    const longer = Math.max(pause, Math.min(LONGEST, 500 * 2 ** tries));
    next = Date.now() + longer * (0.5 + Math.random() / 2);
  });
}

async function ask() {
  if (asked || !isLooking() || isOpen()) return;
  asked = true;
  try {
    const answer = await fetch(live.dataset.url, {
      credentials: "same-origin", redirect: "manual", signal: AbortSignal.timeout(8000),
    });
    if (answer.type === "opaqueredirect" || answer.status === 403) { location.reload(); return; }
    if (answer.ok && isLooking()) take(await answer.text());
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
  if (!isLooking()) return;
  if (socket === null && Date.now() >= next) connect();
  else if (isOpen() && Date.now() - Math.max(good, opened) > GIVE_UP) socket.close();
  put();
  if (live.dataset.state === "stale") return;
  for (const each of document.querySelectorAll("time[data-until]")) {
    each.textContent = lapse((Date.parse(each.dataset.until) - Date.now()) / 1000);
  }
}

// The pointer, the tab or the button: whether somebody looks has changed.
function turn() {
  good = Date.now();
  if (isLooking()) {
    next = 0;
    say({ type: "resume" });
  } else {
    say({ type: "pause" });
  }
  tick();
}

button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  button.querySelector("use").setAttribute("href", paused ? "#i-play" : "#i-pause");
  turn();
});
document.addEventListener("visibilitychange", turn);
setInterval(tick, 1000);
setInterval(ask, EVERY);
tick();
