// Writing and sending: a message is shown at once, and kept here until the server has it.
import { $, $$, config, direct, element, icon, newId, store, visible, words } from "./page.js";
import { showLog } from "./transcript.js";
import { follow, toEnd } from "./scroll.js";
import { say } from "./say.js";

export const box = $("#composer");
const warn = $("#composer-warn"), list = $("#slash-pop"), opener = $("#slash-open");
const pendingName = `pending:${config.chat}`, draftName = `draft:${config.chat}`;
const touch = matchMedia("(hover: none) and (pointer: coarse)");
const encoder = new TextEncoder();

// What was sent and is not in the transcript yet: {id, frame, text, state, why, turn, at}
let pending = [];
let send = () => false;

export function sizeOf(text) { return encoder.encode(text).length; }
function keep() { store.write(pendingName, pending.filter((each) => each.state !== "sent").map(({ id, frame, text, state, why }) => ({ id, frame, text, state, why }))); }
function keepDraft() { store.write(draftName, box.value); }

// --- Bubbles -------------------------------------------------------------------------------------

function bubble(item) {
  const known = document.getElementById(`sent-${item.id}`);
  if (item.isQuiet) { known?.remove(); return; }
  const shown = element("article", { className: "msg msg--me", id: `sent-${item.id}`, "aria-label": words.you });
  const text = item.text.length > 4000 ? `${item.text.slice(0, 4000)}…` : item.text;
  shown.append(element("div", { className: "bubble", dir: "auto" }, visible(text)));
  if (item.state === "failed") {
    shown.classList.add("msg--failed");
    const act = (name, word) => element("button", { className: "link", type: "button", data: { pending: name, id: item.id } }, word);
    shown.append(element("div", { className: "msg__fail", role: "alert" }, element("span", {}, icon("warn"), ` ${item.why || words.notSent}`), element("span", { className: "actions" }, act("retry", words.retry), act("edit", words.edit), act("discard", words.discard))));
  } else {
    if (item.state === "sending") shown.classList.add("msg--sending");
    const waits = item.state === "sent" && Date.now() - item.at > 4000;
    const word = item.state === "sending" ? (item.isLate ? words.offlineKept : words.sending) : waits ? words.waitsForWorker : words.sent;
    shown.append(element("div", { className: "meta" }, element("span", {}, word)));
  }
  if (known) known.replaceWith(shown);
  else { showLog(); $("#pending").append(element("div", { className: "turn" }, shown)); }
  if (known === null) toEnd();
}

function drop(item) {
  pending = pending.filter((each) => each !== item);
  document.getElementById(`sent-${item.id}`)?.closest(".turn").remove();
  keep();
}

export function shownFor(test) {
  for (const item of pending.filter(test)) drop(item);
}

// --- Sending -------------------------------------------------------------------------------------

export function isPending(turn) { return pending.some((each) => each.turn === turn || each.state === "sending"); }

export function connectTo(sender) { send = sender; }

function out(item) {
  item.state = "sending";
  item.why = "";
  const isOut = send({ ...item.frame, ref: item.id });
  item.isLate = !isOut;
  bubble(item);
  keep();
}

// Sends a frame that carries an id of ours; it is sent again, with the same id, until it is known.
export function submit(frame, text, isQuiet = false) {
  const item = { id: newId(), text, state: "sending", at: Date.now(), isQuiet };
  item.frame = { ...frame, id: item.id };
  pending.push(item);
  out(item);
  return item;
}

export function resend() {
  for (const item of pending) if (item.state === "sending") out(item);
}

export function accepted(frame) {
  const item = pending.find((each) => each.id === frame.ref || each.id === frame.id);
  if (!item) return;
  item.state = "sent";
  item.turn = frame.turn;
  item.at = Date.now();
  const isShown = document.getElementById(`turn-${frame.turn}`) !== null;
  if (isShown || (frame.status && !["queued", "running", "waiting"].includes(frame.status))) { drop(item); return; }
  keep();
  bubble(item);
  setTimeout(() => { if (pending.includes(item)) bubble(item); }, 4500);
}

// True if the frame was about something that was sent from here.
export function answered(frame) {
  const item = pending.find((each) => each.id === frame.ref);
  if (!item) return false;
  if (frame.type !== "error") { drop(item); return true; }
  if (frame.code === "unavailable") { setTimeout(() => { if (pending.includes(item)) out(item); }, (frame.retry || 2) * 1000); return true; }
  if (frame.code === "id_reused") { item.id = newId(); item.frame.id = item.id; }
  fail(item, frame.message);
  return true;
}

function fail(item, why) {
  item.state = "failed";
  item.why = why;
  if (item.isQuiet) { drop(item); say(why); return; }
  keep();
  bubble(item);
  say(`${words.notSent} ${why}`);
}

export function tooBig() {
  // The frame that closed the connection must not be sent again.
  const sent = pending.filter((each) => each.state === "sending" && !each.isLate).sort((a, b) => b.text.length - a.text.length);
  if (sent.length) fail(sent[0], words.tooBig);
}

export function back(text) {
  if (!text) return;
  if (text.includes(box.value)) box.value = text;
  else if (!box.value.includes(text)) box.value = `${text}\n\n${box.value}`;
  grow();
  keepDraft();
}

// --- The box -------------------------------------------------------------------------------------

// A very long text gets a box of fixed size: measuring it at every key would freeze the page.
const LONG = 20000;

function grow() {
  direct(box);
  box.classList.toggle("composer__text--long", box.value.length > LONG);
  if (CSS.supports("field-sizing", "content")) return;
  box.rows = Math.min(12, box.value.split("\n").length);
}

function complain(text) {
  warn.textContent = text;
  warn.hidden = !text;
  if (text) box.setAttribute("aria-invalid", "true"); else box.removeAttribute("aria-invalid");
}

function problem(text) {
  const size = sizeOf(text);
  if (size > config.limit) return words.limit.replace("{size}", Math.ceil(size / 1024)).replace("{limit}", Math.floor(config.limit / 1024));
  const command = /^\/(?!\/)(\S*)/.exec(text);
  if (!command || config.commands.includes(command[1].toLowerCase())) return "";
  const near = config.commands.find((each) => distance(each, command[1].toLowerCase()) <= 2);
  return (near ? words.didYouMean.replace("{near}", `/${near}`) : words.unknownCommand).replace("{name}", `/${command[1]}`);
}

function distance(a, b) {
  let row = [...Array(b.length + 1).keys()];
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) next[j] = Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    row = next;
  }
  return row[b.length];
}

function go() {
  const text = box.value;
  if (!text.trim()) return;
  const why = problem(text);
  complain(why);
  if (why) return;
  box.value = "";
  grow();
  keepDraft();
  closeList();
  submit({ type: "turn.submit", text }, text);
  toEnd();
  box.focus();
}

export function setBusy(isBusy) {
  $("#stop").hidden = !isBusy;
  $("#send-word").textContent = isBusy ? words.queue : words.send;
  $("#hint-send").textContent = isBusy ? words.queues : words.sends;
  box.placeholder = isBusy ? words.placeholderBusy : words.placeholder;
}

// --- Commands ------------------------------------------------------------------------------------

function options() { return $$(".slash__opt", list).filter((option) => !option.hidden); }

function choose(option) {
  for (const each of $$(".slash__opt", list)) each.setAttribute("aria-selected", String(each === option));
  if (option) { box.setAttribute("aria-activedescendant", option.id); option.scrollIntoView({ block: "nearest" }); } else box.removeAttribute("aria-activedescendant");
}

function openList(typed) {
  for (const option of $$(".slash__opt", list)) option.hidden = !option.dataset.command.startsWith(typed);
  const left = options();
  list.hidden = !left.length;
  opener.setAttribute("aria-expanded", String(!list.hidden));
  box.setAttribute("role", "combobox");
  box.setAttribute("aria-expanded", String(!list.hidden));
  choose(left[0] ?? null);
}

export function isListOpen() { return !list.hidden; }

export function closeList() {
  list.hidden = true;
  opener.setAttribute("aria-expanded", "false");
  box.removeAttribute("role");
  box.removeAttribute("aria-expanded");
  choose(null);
}

function finish(option) {
  box.value = `/${option.dataset.command}${option.dataset.takes ? " " : ""}`;
  closeList();
  complain("");
  keepDraft();
  box.focus();
}

function keyed(event) {
  if (event.isComposing || event.keyCode === 229) return;
  if (isListOpen()) {
    const all = options(), at = all.findIndex((each) => each.getAttribute("aria-selected") === "true");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); choose(all[(at + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length]); return; }
    if (event.key === "Tab" && !event.shiftKey && at >= 0) { event.preventDefault(); finish(all[at]); return; }
    if (event.key === "Enter" && !event.shiftKey && at >= 0 && box.value.trim() !== `/${all[at].dataset.command}`) { event.preventDefault(); finish(all[at]); return; }
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); closeList(); return; }
  }
  if (event.key === "Enter" && !event.shiftKey && !event.altKey && (!touch.matches || event.ctrlKey || event.metaKey)) { event.preventDefault(); go(); }
}

export function composer() {
  $("#compose").addEventListener("submit", (event) => { event.preventDefault(); go(); });
  box.addEventListener("keydown", keyed);
  box.addEventListener("input", () => {
    complain("");
    grow();
    keepDraft();
    const typed = /^\/(?!\/)(\S*)$/.exec(box.value);
    if (typed) openList(typed[1].toLowerCase()); else closeList();
  });
  box.addEventListener("blur", () => setTimeout(() => { if (!list.contains(document.activeElement)) closeList(); }, 150));
  list.addEventListener("pointerdown", (event) => { event.preventDefault(); const option = event.target.closest(".slash__opt"); if (option) finish(option); });
  opener.addEventListener("click", () => { if (isListOpen()) closeList(); else { openList(""); box.focus(); } });
  for (const start of $$("[data-start]")) start.addEventListener("click", () => { box.value = start.dataset.start; keepDraft(); box.focus(); box.setSelectionRange(box.value.length, box.value.length); });
  $("#pending").addEventListener("click", (event) => {
    const button = event.target.closest("[data-pending]");
    const item = button && pending.find((each) => each.id === button.dataset.id);
    if (!item) return;
    if (button.dataset.pending === "retry") out(item);
    else { drop(item); if (button.dataset.pending === "edit") { back(item.text); box.focus(); } }
  });
  const kept = store.read(draftName, "");
  box.value = kept || config.draft || "";
  grow();
  pending = store.read(pendingName, []).map((each) => ({ ...each, at: Date.now() }));
  for (const item of pending) { item.isLate = true; bubble(item); }
  if (!touch.matches) box.focus({ preventScroll: true });
  follow();
}
