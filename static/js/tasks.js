// Background work: questions, processes and results in the log, the task drawer, notifications.
import { $, $$, base, get, newId, parse, store, words } from "./page.js";
import { localise } from "./clocks.js";
import { back, box } from "./composer.js";
import { sheet, sure, toast } from "./dialogs.js";
import { say } from "./say.js";
import { arrived, follow, toEnd } from "./scroll.js";

const list = $("#tasks"), drawer = $("#drawer");
const narrow = matchMedia("(max-width: 75rem)");
const asked = new Map(); // ref -> the card in which its answer, or why there is none, is shown
let send = () => false;
let open = 0; // hello tells

// --- Keeping what somebody looks at --------------------------------------------------------------

// Puts a fresh card in the place of the old one. While only its output has grown, the card stays:
// what is focused, selected or typed in it is not taken away.
function renew(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.dataset.mark && old.dataset.mark === fresh.dataset.mark) {
    for (const name of ["tail", "last"]) {
      const now = $(`[data-${name}]`, old), then = $(`[data-${name}]`, fresh);
      if (!now || !then || now.textContent === then.textContent) continue;
      const atEnd = now.scrollHeight - now.scrollTop - now.clientHeight < 24;
      now.textContent = then.textContent;
      if (atEnd) now.scrollTop = now.scrollHeight;
    }
    return;
  }
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const isOpen = old.open;
  old.replaceWith(fresh);
  if (isOpen) fresh.open = true;
  if (!focused) return;
  const act = focused.dataset.act, same = act && $(`[data-act="${act}"]`, fresh);
  const next = same || $("[data-log], a, button", fresh) || (drawer.contains(fresh) ? $("[data-act=tasks-close]") : box);
  next.focus({ preventScroll: true });
}

function only(html) {
  const fresh = parse(html).firstElementChild;
  localise(fresh);
  return fresh;
}

export function endTails(from = document) { for (const out of $$("[data-tail]", from)) out.scrollTop = out.scrollHeight; }

// --- The drawer ----------------------------------------------------------------------------------

function badge() {
  for (const each of $$("[data-tasks-open]")) {
    each.textContent = String(open);
    each.hidden = !open;
  }
  for (const button of $$("[data-drawer-toggle]")) {
    button.setAttribute("aria-expanded", String(isDrawerOpen()));
    button.setAttribute("aria-label", open ? words.tasksOpen.replace("{n}", open) : words.tasks);
  }
}

export function showTasks(frame) {
  if (frame.open !== undefined) open = frame.open;
  badge();
  if (frame.html === undefined) return;
  const fresh = document.createElement("div");
  fresh.append(parse(frame.html));
  localise(fresh);
  const act = list.contains(document.activeElement) ? [document.activeElement.closest(".task")?.id, document.activeElement.dataset.act] : null;
  for (const item of $$(".task", fresh)) {
    const old = document.getElementById(item.id);
    if (old && old.dataset.mark === item.dataset.mark) { renew(old, item); item.replaceWith(old); }
  }
  list.replaceChildren(...fresh.childNodes);
  if (!act || list.contains(document.activeElement)) return;
  const item = act[0] && document.getElementById(act[0]);
  ((item && ($(`[data-act="${act[1]}"]`, item) ?? $("a, button", item))) || $("[data-act=tasks-close]")).focus({ preventScroll: true });
}

export function isDrawerOpen() { return narrow.matches ? document.body.dataset.sheet === "drawer" : document.body.dataset.drawer === "open"; }

let opener = null;
export function openDrawer(isOpen = true) {
  if (isOpen && !isDrawerOpen()) opener = document.activeElement;
  if (narrow.matches) sheet(isOpen ? "drawer" : "none");
  else {
    document.body.dataset.drawer = isOpen ? "open" : "closed";
    store.write("drawer", isOpen);
    if (isOpen) $("[data-act=tasks-close]").focus({ preventScroll: true });
    else if (drawer.contains(document.activeElement) || document.activeElement === document.body) (opener?.isConnected ? opener : $("[data-drawer-toggle]") ?? box).focus({ preventScroll: true });
  }
  badge();
}

// --- What frames bring ---------------------------------------------------------------------------

function showAsk(frame) {
  const old = document.getElementById(`ask-${frame.approval.id}`);
  const card = frame.html ? only(frame.html) : null;
  // The words of the card: there, signs that cannot be seen are told by their number.
  const shown = card ?? old;
  const command = shown ? $(".cmd", shown)?.textContent ?? "" : "";
  if (old && card) renew(old, card);
  if (frame.approval.state === "open") { say(words.asks); tell(words.asks, command, `ask-${frame.approval.id}`); }
}

function showProcess(frame) {
  const old = document.getElementById(`proc-${frame.process.id}`);
  if (!old || !frame.html) return;
  renew(old, only(frame.html));
  follow();
}

function showNews(frame) {
  const told = frame.completion;
  if (["quiet", "dropped", "accepted"].includes(told.state)) {
    say(words.taskEnded);
    tell(words.taskEnded, told.text, `news-${told.id}`);
  }
  const old = document.getElementById(`news-${told.id}`);
  if (!frame.html) { if (old?.classList.contains("event--quiet")) old.remove(); return; }
  const fresh = only(frame.html);
  if (old) { renew(old, fresh); return; }
  const section = $$("#log .session").find((each) => each.dataset.session === String(told.session));
  if (!section) return;
  section.append(fresh);
  arrived();
  follow();
}

export function takeTask(frame) {
  if (frame.type === "approval.update") showAsk(frame);
  else if (frame.type === "process.update") showProcess(frame);
  else if (frame.type === "completion.update") showNews(frame);
  else showTasks(frame);
}

// True if an error is about something of a card, where it is shown.
export function taskFailed(frame) {
  const card = asked.get(frame.ref);
  if (!card) return false;
  asked.delete(frame.ref);
  const line = $("[data-ask-error], [data-type-error]", card);
  for (const button of $$("button", card)) button.disabled = false;
  if (!line || !card.isConnected) return false;
  line.textContent = frame.message;
  line.hidden = false;
  return true;
}

// --- What people do ------------------------------------------------------------------------------

function answer(card, said) {
  const ref = newId();
  if (!send({ type: "approval.answer", approval: Number(card.dataset.ask), answer: said, ref })) { toast(words.lost); return; }
  asked.set(ref, card);
  for (const button of $$("button", card)) button.disabled = true;
}

function kill(button) {
  sure({ title: words.killAsk, command: button.dataset.command, text: words.killThen, go: words.kill }, () => {
    if (!send({ type: "process.kill", process: button.dataset.process, ref: newId() })) toast(words.lost);
  });
}

function type(form) {
  const field = $("input", form), ref = newId();
  $("[data-type-error]", form).hidden = true;
  if (!send({ type: "process.input", process: form.dataset.type, id: ref, text: `${field.value}\n`, ref })) { toast(words.lost); return; }
  asked.set(ref, form);
  field.value = "";
}

function toAsk(button) {
  const card = document.getElementById(`ask-${button.dataset.ask}`);
  openDrawer(isDrawerOpen() && !narrow.matches);
  if (!card) { toEnd(); return; }
  card.scrollIntoView({ block: "center" });
  card.focus({ preventScroll: true });
}

async function bring(button) {
  try {
    back(await get(`${base}results/${button.dataset.news}/`));
    box.focus();
    box.setSelectionRange(0, 0);
  } catch { toast(words.bringFailed); }
}

export const TASK_ACTS = {
  tasks: () => openDrawer(!isDrawerOpen()),
  "tasks-close": () => openDrawer(false),
  ask: (button) => answer(button.closest("[data-ask]"), button.dataset.answer),
  "to-ask": toAsk,
  kill,
  bring,
  notify: toggleNotify,
};

// --- Notifications: asked for by a press of the button, never by the page -------------------------

function wants() { return store.read("notify", false) && "Notification" in window && Notification.permission === "granted"; }

function showNotify() {
  const line = $("#notify"), button = $("button", line);
  line.hidden = !("Notification" in window) || !window.isSecureContext;
  if (line.hidden) return;
  const isBlocked = Notification.permission === "denied";
  $("span", button).textContent = isBlocked ? words.notifyBlocked : wants() ? words.notifyOff : words.notify;
  button.disabled = isBlocked;
  button.setAttribute("aria-pressed", String(wants()));
}

async function toggleNotify() {
  if (wants()) store.write("notify", null);
  else if (await Notification.requestPermission() === "granted") store.write("notify", true);
  showNotify();
}

function tell(title, body, tag) {
  if (!wants() || (document.hasFocus() && !document.hidden)) return;
  try {
    const shown = new Notification(title, { body: body.slice(0, 200), tag: `hermes-${tag}` });
    shown.onclick = () => { window.focus(); shown.close(); };
  } catch { /* a browser that only lets service workers tell */ }
}

// --- Begin ---------------------------------------------------------------------------------------

export function tasks(sender) {
  send = sender;
  if (store.read("drawer", false) && !narrow.matches) document.body.dataset.drawer = "open";
  narrow.addEventListener("change", badge);
  new MutationObserver(badge).observe(document.body, { attributes: true, attributeFilter: ["data-sheet"] });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-type]");
    if (!form) return;
    event.preventDefault();
    type(form);
  });
  // The keys of a question act while it has the focus, and it never takes it by itself.
  document.addEventListener("keydown", (event) => {
    const card = event.target.closest?.("[data-ask].ask");
    if (!card || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const said = { 1: "once", 2: "always", 0: "deny" }[event.key];
    const button = said && $(`[data-answer="${said}"]:not(:disabled)`, card);
    if (!button) return;
    event.preventDefault();
    button.click();
  });
  endTails();
  showNotify();
  badge();
}

export function headRenewed() { badge(); }
