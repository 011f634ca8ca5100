// The chat page: its parts, wired to one socket.
import { $, config, element, parse, visible, words } from "./page.js";
import { actions, editLast, press, stop } from "./actions.js";
import { banners } from "./banner.js";
import { clocks, localise } from "./clocks.js";
import { accepted, answered, back, box, composer, connectTo, isPending, resend, setBusy, shownFor, tooBig } from "./composer.js";
import { dialogs, toast } from "./dialogs.js";
import { keyboard } from "./keyboard.js";
import { queue, queueSends, settle, showQueue } from "./queue.js";
import { isAtEnd, onEnd, scrolling } from "./scroll.js";
import { markRunning, refresh, refreshIfNew, sidebar } from "./sidebar.js";
import { Socket } from "./socket.js";
import { answeredHere, isDeferral, placeNote, showNote, showPill, showPreview, summaries, undoFailed } from "./summaries.js";
import { endTails, headRenewed, openDrawer, showTasks, takeTask, taskFailed, tasks } from "./tasks.js";
import { themes } from "./themes.js";
import { onChange, onResync, showLog, showNotice, state, take } from "./transcript.js";

const socket = new Socket(config.socket);
let readSeq = 0, readSession = null;

function read() {
  if (document.hidden || !isAtEnd() || state.session === null) return;
  if (readSession === state.session && readSeq >= state.lastSeq) return;
  if (socket.send({ type: "read", session: state.session, seq: state.lastSeq })) { readSession = state.session; readSeq = state.lastSeq; }
}

function showHead(frame) {
  const holder = $("#head");
  if (frame.html && !holder.querySelector("details[open]")) { holder.replaceChildren(parse(frame.html)); headRenewed(); }
  if (frame.chat?.title) document.title = `${frame.chat.title} · Hermes`;
}

function showMeter(frame) {
  const holder = $("#meter"), isOpen = holder.querySelector("details")?.open;
  holder.replaceChildren(parse(frame.html));
  if (isOpen) holder.querySelector("details").open = true;
}

function openOf(frame) { return frame.approvals.length + frame.processes.filter((each) => ["starting", "running"].includes(each.state)).length; }

function held(turn) { return $(`#pending [data-held="${turn}"]`); }

// A turn that a worker has, but that has not begun: in a tab that did not send it, what was said.
function showHeld(turn, text) {
  if (!text || held(turn) || isPending(turn)) return;
  showLog();
  $("#pending").append(element("div", { className: "turn", data: { held: turn } }, element("article", { className: "msg msg--me msg--sending", "aria-label": words.you }, element("div", { className: "bubble", dir: "auto" }, visible(text)))));
}

function taken(frame) {
  switch (frame.type) {
    case "hello": case "session.changed":
      take(frame);
      showQueue(frame);
      showHead({ html: frame.htmls?.chat, chat: frame.chat });
      if (frame.htmls?.queue !== undefined) showQueue({ type: "queue", items: frame.queue, html: frame.htmls.queue });
      if (frame.htmls?.meter) showMeter({ html: frame.htmls.meter });
      showPill(frame.compaction, frame.htmls?.compaction ?? "");
      if (frame.preview && frame.htmls?.preview) showPreview({ attempt: frame.preview.attempt, html: frame.htmls.preview });
      showTasks({ html: frame.htmls?.tasks, open: openOf(frame) });
      endTails();
      if (frame.turn?.status === "held") showHeld(frame.turn.id, frame.turn.said);
      if (frame.type === "session.changed" && frame.chat?.draft && frame.reason === "new") back(frame.chat.draft);
      resend();
      break;
    case "turn.accepted": accepted(frame); refreshIfNew(); break;
    case "turn.held": showHeld(frame.turn, frame.text); take(frame); break;
    case "queue": showQueue(frame); break;
    case "chat.changed": showHead(frame); break;
    case "chat.branched": location.href = `/chats/${frame.chat}/`; break;
    case "meter": if (frame.html) showMeter(frame); break;
    case "sidebar": refresh(); break;
    case "compaction.update": showPill(frame, frame.html); break;
    case "compaction.preview": showPreview(frame); break;
    case "completion.update": takeTask(frame); if (frame.html) { readSession = null; read(); } break; // a row is news too
    case "process.update": case "approval.update": case "tasks": takeTask(frame); break;
    case "notice":
      answered(frame);
      if (answeredHere(frame)) break;
      if (frame.code === "tasks" && frame.ref) { openDrawer(); break; }
      if (isDeferral(frame)) { showNote(frame); break; }
      if (frame.html) showNotice(frame.html);
      if (frame.drafts?.length) { back(frame.drafts.join("\n\n")); box.focus({ preventScroll: true }); }
      localise($("#notices"));
      break;
    case "error": undoFailed(); if (!taskFailed(frame) && !answeredHere(frame) && !answered(frame) && frame.code !== "nothing_runs") toast(frame.message || words.failed); break;
    default: take(frame);
  }
  if (frame.type !== "turn.delta") placeNote();
  // There may be no turn.started before an end.
  if (/^turn\.(started|tool|waiting|queued|completed|cancelled|interrupted|failed)/.test(frame.type)) { held(frame.turn)?.remove(); if (document.getElementById(`turn-${frame.turn}`)) shownFor((each) => each.turn === frame.turn); }
  if (frame.type.startsWith("turn.") && frame.type !== "turn.delta") { settle(); if (frame.html) endTails(document.getElementById(`turn-${frame.turn}`) ?? undefined); }
  if (/^(hello|session|turn\.(completed|failed|cancelled|interrupted))/.test(frame.type)) read();
}

themes();
dialogs();
scrolling();
composer();
queue();
sidebar(() => Boolean(state.busy));
clocks();
actions(socket);
keyboard({ stop, editLast, press });
banners(socket);
connectTo((frame) => socket.send(frame));
summaries((frame) => socket.send(frame));
tasks((frame) => socket.send(frame));
queueSends((frame) => { if (!socket.send(frame)) toast(words.lost); });
onChange((now) => { setBusy(Boolean(now.busy)); markRunning(Boolean(now.busy)); settle(); });
onResync(() => socket.resync());
onEnd(read);
addEventListener("visibilitychange", read);
socket.addEventListener("frame", ({ detail }) => taken(detail));
socket.addEventListener("state", ({ detail: { state: now, code } }) => {
  if (now === "lost" && code === 1009) tooBig();
  document.documentElement.dataset.connection = now;
  if (now === "over") { // nothing that is sent from here on would arrive
    setBusy(false);
    for (const each of document.querySelectorAll(".composer button[type=submit]")) each.disabled = true;
  }
});
socket.connect();
