// The log, as frames say it is. Closed blocks are never touched again; only `.open` grows.
import { $, $$, base, codePoints, config, element, get, icon, parse, unitsOf, visible, words } from "./page.js";
import { localise } from "./clocks.js";
import { arrived, follow, isFollowed, keepPlace, toEnd } from "./scroll.js";
import { say, speech } from "./say.js";

const log = $("#log");
const FENCE = /^(```|~~~)/;
const KEPT = 200; // turns in the page; older ones are loaded again on demand
export const state = { session: config.session, version: config.version, chatVersion: config.chatVersion, lastSeq: config.lastSeq, busy: null };

// The turn whose text streams: offsets count code points, as the frames do.
let live = null; // {turn, run, end, openStart, k, open, prose, openNode, thoughts}
let added = ""; // text that is not in the page yet
let frameAsked = false;
const listeners = new Set();
export function onChange(listener) { listeners.add(listener); }
function changed() { for (const listener of listeners) listener(state); }

function turnNode(turn) { return document.getElementById(`turn-${turn}`); }

function currentSection() {
  const sections = $$(":scope > .session:not(.session--past)", log);
  let section = sections[sections.length - 1];
  if (!section) {
    section = element("section", { className: "session", data: { session: state.session ?? "" } });
    log.append(section);
  }
  return section;
}

export function showLog() {
  $("#empty")?.remove();
  log.hidden = false;
  $("#strip").hidden = false;
  $("#scroll").classList.remove("scroll--center");
}

// --- Whole turns ---------------------------------------------------------------------------------

function place(turn, html) {
  const fresh = html ? parse(html).querySelector(".turn") : null;
  const old = turnNode(turn);
  if (fresh) localise(fresh);
  showLog();
  const focus = old?.contains(document.activeElement) ? document.activeElement.dataset.act : null;
  if (old && fresh) {
    const opened = $$("details[open] > summary", old).length;
    old.replaceWith(fresh);
    if (opened) for (const each of $$("details.think", fresh)) each.open = false;
  } else if (old) old.remove();
  else if (fresh) { $(".divide--undone", log)?.remove(); currentSection().append(fresh); bound(); }
  if (focus && fresh) ($(`[data-act="${focus}"]`, fresh) ?? $("#composer")).focus({ preventScroll: true });
  return fresh;
}

function bound() {
  const turns = $$(".turn", log);
  if (turns.length <= KEPT || !isFollowed()) return;
  for (const turn of turns.slice(0, turns.length - KEPT)) {
    while (turn.nextElementSibling?.matches(".divide, .event")) turn.nextElementSibling.remove();
    turn.remove();
  }
  for (const section of $$(".session", log)) {
    if (section !== currentSection() && !section.children.length) { section.nextElementSibling?.matches(".divide") && section.nextElementSibling.remove(); section.remove(); }
  }
  const first = $(".turn", log);
  let button = $("#older");
  if (!button) {
    button = element("button", { className: "btn btn--quiet btn--sm log__older", type: "button", id: "older" }, icon("arrow-up"), words.older);
    log.prepend(button);
  }
  button.dataset.session = first.dataset.session;
  button.dataset.before = first.dataset.first;
}

function replaceLog(html) {
  keepPlace(() => {
    const fresh = parse(html);
    localise(fresh);
    for (const turn of fresh.querySelectorAll(".turn[id]")) {
      const old = document.getElementById(turn.id);
      if (old && old.isEqualNode(turn)) turn.replaceWith(old);
    }
    log.replaceChildren(fresh);
  });
  if ($(".turn", log)) showLog();
}

// --- Streamed text -------------------------------------------------------------------------------

function begin(turn, run, from) {
  const node = turnNode(turn);
  const prose = node && $("[data-live]", node);
  flush();
  live = prose ? { turn, run, end: from, openStart: from, k: 0, open: "", prose, openNode: null, thoughts: null, node } : null;
  added = "";
}

function openText() {
  if (!live.openNode) {
    live.openNode = document.createTextNode("");
    live.prose.append(element("p", { className: "open", dir: "auto" }, live.openNode));
    const word = $("[data-live-word]", live.node);
    if (word) word.textContent = words.writing;
  }
  return live.openNode;
}

function ask() {
  if (frameAsked) return;
  frameAsked = true;
  requestAnimationFrame(flush);
  setTimeout(() => { if (frameAsked && document.hidden) flush(); }, 250);
}

// At most one write a frame.
function flush() {
  frameAsked = false;
  if (!live || !added) return;
  openText().appendData(visible(added));
  live.open += added;
  added = "";
  live.openNode.parentNode.classList.toggle("open--code", FENCE.test(live.open));
  follow();
}

function append(frame) {
  if (!live || frame.turn !== live.turn || frame.run !== live.run) return;
  let text = frame.text;
  if (frame.offset > live.end) { resync(); return; }
  if (frame.offset < live.end) text = text.slice(unitsOf(text, live.end - frame.offset));
  if (!text) return;
  live.end += codePoints(text);
  added += text;
  speech.add(text);
  ask();
}

function closeBlock(frame) {
  if (!live || frame.turn !== live.turn || frame.run !== live.run || frame.k < live.k) return;
  if (frame.k > live.k || frame.from !== live.openStart) { resync(); return; }
  flush();
  const block = element("div", { className: "block", data: { k: frame.k } });
  block.append(parse(frame.html));
  live.prose.insertBefore(block, live.openNode?.parentNode ?? null);
  // `open` is all that is open behind the block; in hello it comes after the last one.
  live.open = frame.open ?? "";
  live.end = frame.to + codePoints(live.open);
  showOpen();
  live.k = frame.k + 1;
  live.openStart = frame.to;
  follow();
}

function showOpen() {
  if (live.open) {
    openText().data = visible(live.open);
    live.openNode.parentNode.classList.toggle("open--code", FENCE.test(live.open));
  } else if (live.openNode) {
    live.openNode.parentNode.remove();
    live.openNode = null;
  }
}

function reason(frame) {
  if (!live || frame.turn !== live.turn || frame.run !== live.run) return;
  if (!live.thoughts) {
    const text = document.createTextNode("");
    const summary = element("summary", {}, icon("chev", "chev"), element("span", {}, words.thinking));
    const fold = element("details", { className: "think" }, summary, element("div", { className: "think__text plain", dir: "auto" }, text));
    live.prose.before(fold);
    live.thoughts = { text, end: 0 };
    const word = $("[data-live-word]", live.node);
    if (word) word.textContent = words.thinking;
  }
  if (frame.offset > live.thoughts.end) live.thoughts.end = frame.offset; // at most once: a gap stays
  const fresh = frame.text.slice(unitsOf(frame.text, live.thoughts.end - frame.offset));
  live.thoughts.text.appendData(visible(fresh));
  live.thoughts.end += codePoints(fresh);
  follow();
}

function complete(frame) {
  flush();
  const node = turnNode(frame.turn);
  if (frame.html !== undefined) { place(frame.turn, frame.html); } else if (node && live?.turn === frame.turn && live.run === frame.run) {
    const { prose } = live;
    live.openNode?.parentNode.remove();
    for (const { k, html } of frame.blocks) {
      const block = element("div", { className: "block", data: { k } });
      block.append(parse(html));
      const old = $(`:scope > .block[data-k="${k}"]`, prose);
      if (old) old.replaceWith(block);
      else prose.insertBefore(block, $$(":scope > .block", prose).find((each) => Number(each.dataset.k) > k) ?? null);
    }
    for (const block of $$(":scope > .block", prose)) if (Number(block.dataset.k) >= frame.total) block.remove();
    const thought = live.thoughts && $("summary span", live.thoughts.text.parentNode.parentNode);
    if (thought) thought.textContent = words.thoughts;
    prose.removeAttribute("data-live");
    if (frame.seq) { prose.dataset.seq = frame.seq; node.dataset.last = frame.seq; }
    node.dataset.status = "completed";
    const foot = $("[data-foot]", node), fresh = parse(frame.foot);
    localise(fresh);
    foot?.replaceWith(fresh);
  } else { resync(); return; }
  live = null;
  added = "";
  speech.end();
  follow();
}

let resyncing = () => {};
function resync() { live = null; added = ""; resyncing(); }
export function onResync(ask) { resyncing = ask; }

// --- Frames --------------------------------------------------------------------------------------

function showRunning(turn) {
  state.busy = turn ? { turn: turn.id, status: turn.status } : null;
  if (!turn || turn.status !== "running") { if (live) { flush(); live = null; } return; }
  const node = turnNode(turn.id);
  const same = live && live.turn === turn.id && live.run === turn.run && live.node.isConnected;
  const size = codePoints(turn.open ?? "") + (turn.blocks?.length ? turn.blocks[turn.blocks.length - 1].to : turn.base);
  if (same && size >= live.end) {
    // What is shown is a beginning of what is: go on from there.
    for (const block of turn.blocks ?? []) { if (block.k >= live.k) { settle(block); } }
    added = "";
    if (live.open !== turn.open) { live.open = turn.open ?? ""; showOpen(); }
    live.end = size;
    follow();
    return;
  }
  if (!node) return;
  const prose = $("[data-live]", node);
  if (prose) prose.replaceChildren();
  begin(turn.id, turn.run, turn.base);
  if (!live) return;
  for (const block of turn.blocks ?? []) settle(block);
  live.open = turn.open ?? "";
  showOpen();
  live.end = size;
  follow();
}

function settle(block) {
  closeBlock({ turn: live.turn, run: live.run, k: block.k, from: live.openStart, to: block.to, html: block.html });
}

function takeWhole(frame) {
  const session = frame.session;
  const isSame = frame.type === "hello" && session && session.id === state.session && session.version === state.version;
  if (frame.html !== undefined && !isSame) { live = null; added = ""; replaceLog(frame.html); }
  state.session = session?.id ?? null;
  state.version = session?.version ?? 0;
  state.lastSeq = session?.last_seq ?? 0;
  if (!frame.turn || !turnNode(frame.turn.id) || frame.turn.status !== "running") state.busy = frame.turn ? { turn: frame.turn.id, status: frame.turn.status } : null;
  showRunning(frame.turn);
  changed();
}

const ENDS = { "turn.completed": words.answerDone, "turn.cancelled": words.answerStopped, "turn.interrupted": words.answerInterrupted, "turn.failed": words.answerFailed };

export function take(frame) {
  switch (frame.type) {
    case "hello": case "session.changed": takeWhole(frame); break;
    case "turn.started":
      // The group is whole and its live part empty: whatever was shown beyond it is cut back.
      $("#notices").replaceChildren(); // what was told before it is over
      place(frame.turn, frame.html);
      begin(frame.turn, frame.run, frame.base);
      state.busy = { turn: frame.turn, status: "running" };
      speech.begin(); say(words.answerStarted); arrived(); follow(); changed();
      break;
    case "turn.tool":
      place(frame.turn, frame.html);
      begin(frame.turn, frame.run, frame.base);
      state.busy = { turn: frame.turn, status: "running" };
      follow(); changed();
      break;
    case "turn.held": state.busy = { turn: frame.turn, status: "held" }; changed(); break;
    case "turn.delta": append(frame); break;
    case "turn.block": closeBlock(frame); break;
    case "turn.reasoning": reason(frame); break;
    case "turn.waiting":
      if (live?.turn === frame.turn) { live = null; added = ""; }
      place(frame.turn, frame.html);
      state.busy = { turn: frame.turn, status: "waiting" };
      say(words.answerWaits); follow(); changed();
      break;
    case "turn.queued":
      if (live?.turn === frame.turn) { live = null; added = ""; }
      if (frame.html) place(frame.turn, frame.html);
      if (state.busy?.turn === frame.turn) state.busy = null;
      changed();
      break;
    case "turn.completed": case "turn.cancelled": case "turn.interrupted": case "turn.failed":
      if (frame.type === "turn.completed") complete(frame);
      else {
        if (live?.turn === frame.turn) { live = null; added = ""; speech.end(); }
        if (frame.html !== undefined) place(frame.turn, frame.html);
        follow();
      }
      if (state.busy?.turn === frame.turn) state.busy = null;
      if (frame.seq) state.lastSeq = Math.max(state.lastSeq, frame.seq);
      say(ENDS[frame.type]);
      changed();
      break;
    default:
  }
}

// --- Earlier messages ----------------------------------------------------------------------------

export async function loadOlder() {
  const button = $("#older");
  if (!button || button.disabled) return;
  button.disabled = true;
  try {
    const fresh = parse(await get(`${base}older/?session=${button.dataset.session}&before=${button.dataset.before}`));
    localise(fresh);
    keepPlace(() => {
      button.remove();
      const more = fresh.querySelector("#older");
      const sections = [...fresh.querySelectorAll(".session")];
      const dividers = new Map([...fresh.querySelectorAll("[data-divide]")].map((each) => [each.dataset.divide, each]));
      for (const section of sections.reverse()) {
        const here = $(`:scope > .session[data-session="${section.dataset.session}"]`, log);
        const first = $(":scope > .session", log);
        if (here) here.prepend(...section.children);
        else {
          const next = first?.dataset.session;
          if (next && !$(`[data-divide="${next}"]`, log)) log.prepend(dividers.get(next) ?? divider());
          log.prepend(section);
        }
      }
      if (more) log.prepend(more);
    });
    ($("#older") ?? $("#scroll")).focus({ preventScroll: true });
  } catch {
    button.disabled = false;
    say(words.olderFailed);
  }
}

function divider() {
  return element("div", { className: "divide", role: "separator" }, element("span", { className: "divide__text" }, words.newSession));
}

export function showNotice(html) {
  showLog();
  const shown = parse(html);
  const text = shown.textContent.trim();
  $("#notices").append(shown);
  for (const old of $$("#notices > *").slice(0, -4)) old.remove();
  say(text.slice(0, 300));
  toEnd();
}
