// What the buttons of the log, the head and the dock do.
import { $, $$, base, config, direct, element, get, newId, parse, post, words } from "./page.js";
import { localise } from "./clocks.js";
import { box, submit } from "./composer.js";
import { closeMenus, copy, openDialog, toast } from "./dialogs.js";
import { loadOlder, state } from "./transcript.js";
import { change, rename } from "./sidebar.js";
import { lastWaiting, editWaiting } from "./queue.js";
import { toEnd } from "./scroll.js";
import { SUMMARY_ACTS } from "./summaries.js";
import { TASK_ACTS } from "./tasks.js";
import { say } from "./say.js";

let socket = null;

function send(frame) {
  if (!socket.send(frame)) toast(words.lost);
}

export function stop() {
  if (!state.busy) return false;
  if (!socket.send({ type: "turn.stop" })) { toast(words.lost); return true; }
  const word = $(`#turn-${state.busy.turn} [data-live-word]`);
  if (word) word.textContent = words.stopping;
  say(words.stopping);
  return true;
}

function textAddress(turn, query) { return `${base}text/?session=${turn.dataset.session}&${query}`; }

async function whole(button, turn) {
  const seq = button.dataset.seq ?? button.closest("[data-seq]").dataset.seq;
  const holder = button.dataset.seq ? button.closest(".card__label").nextElementSibling : $(".bubble", turn);
  try {
    holder.textContent = await get(textAddress(turn, `seq=${seq}`));
    holder.classList.remove("bubble--cut");
    button.remove();
  } catch (error) { toast(error.message); }
}

async function copyFrom(turn, what) {
  try {
    const query = what === "said" ? `seq=${$(".msg--me", turn).dataset.seq}` : turn.dataset.turn ? `turn=${turn.dataset.turn}` : `seq=${turn.dataset.last}`;
    await copy(await get(textAddress(turn, query)));
  } catch (error) { toast(error.message); }
}

async function edit(turn) {
  const message = $(".msg--me", turn);
  if (!message || $(".msg__edit", message)) return;
  const bubble = $(".bubble", message);
  let text;
  try { text = await get(textAddress(turn, `seq=${message.dataset.seq}`)); } catch (error) { toast(error.message); return; }
  const field = element("textarea", { className: "input", rows: Math.min(10, text.split("\n").length + 1), value: text, "aria-label": words.editMessage });
  direct(field);
  const rest = [...message.children];
  const close = () => { form.remove(); for (const each of rest) each.hidden = false; $("[data-act=edit]", message)?.focus({ preventScroll: true }); };
  const go = () => {
    if (!field.value.trim()) { field.focus(); return; }
    close();
    submit({ type: "turn.edit", turn: Number(turn.dataset.turn), text: field.value }, field.value);
    box.focus({ preventScroll: true });
  };
  const form = element("div", { className: "msg__edit" }, field, element("div", { className: "actions" },
    element("button", { className: "btn btn--quiet", type: "button", onclick: close }, words.cancel),
    element("button", { className: "btn btn--primary", type: "button", onclick: go }, words.sendAgain)),
    element("p", { className: "field__help" }, words.editHelp));
  field.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); close(); }
    if (event.key === "Enter" && !event.shiftKey && !matchMedia("(hover: none)").matches) { event.preventDefault(); go(); }
  });
  for (const each of rest) each.hidden = true;
  bubble.before(form);
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}

export function editLast() {
  const waiting = lastWaiting();
  if (waiting !== null && editWaiting(waiting)) return true;
  const button = $$("#log [data-act=edit]").pop();
  if (!button) return false;
  edit(button.closest(".turn"));
  return true;
}

async function showVersion(rewind) {
  try {
    const fresh = parse(await get(`${base}versions/${rewind}/`));
    localise(fresh);
    $("#version-body").replaceChildren(fresh);
    openDialog("version").dataset.rewind = rewind;
  } catch (error) { toast(error.message); }
}

function branch(turn, seq) {
  const id = newId();
  send({ type: "chat.branch", session: Number(turn.dataset.session), seq: Number(seq), id, ref: id });
}

// Presses a button of a turn, if it has it.
export function press(turn, act) { turn && $(`[data-act="${act}"]`, turn)?.click(); }

const ACTS = {
  ...SUMMARY_ACTS,
  ...TASK_ACTS,
  stop,
  whole,
  edit: (button, turn) => edit(turn),
  latest: () => toEnd(true),
  "copy-said": (button, turn) => copyFrom(turn, "said"),
  "copy-answer": (button, turn) => copyFrom(turn, "answer"),
  continue: () => submit({ type: "turn.continue" }, "", true),
  regenerate: (button, turn) => submit(turn?.dataset.turn ? { type: "turn.regenerate", turn: Number(turn.dataset.turn) } : { type: "turn.regenerate" }, "", true),
  rewind: (button, turn) => send({ type: "turn.rewind", turn: Number(turn.dataset.turn), ref: newId() }),
  version: (button) => showVersion(button.dataset.rewind),
  "version-use": (button) => { const dialog = button.closest("dialog"); dialog.close(); send({ type: "rewind.undo", rewind: Number(dialog.dataset.rewind), ref: newId() }); },
  "bring-back": (button) => send({ type: "rewind.undo", rewind: Number(button.dataset.rewind), ref: newId() }),
  branch: (button, turn) => branch(turn, button.dataset.seq),
  "branch-end": () => { const turn = $$("#log .session:not(.session--past) .turn").pop(); if (turn) branch(turn, turn.dataset.last); },
  "new-session": () => submit({ type: "session.new" }, "/new", true),
  rename: () => rename(config.chat, $("#head .head__title").textContent.trim()),
  pin: (button) => change(config.chat, "pin", button.dataset.on === "1"),
  archive: (button) => change(config.chat, "archive", button.dataset.on === "1"),
  delete: () => change(config.chat, "delete"),
  model: async (button) => { try { await post(`${base}model/`, { endpoint: button.dataset.endpoint }); } catch (error) { toast(error.message); } },
  models: () => { const menu = $(".head__model-menu"); menu.open = true; $("button", menu)?.focus(); },
  dismiss: (button) => button.closest("[data-notice]").remove(),
};

export function actions(to) {
  socket = to;
  document.addEventListener("click", (event) => {
    const copier = event.target.closest("[data-copy]");
    if (copier) { copy($("code", copier.closest(".code")).textContent, copier); return; }
    if (event.target.closest("#older")) { loadOlder(); return; }
    const button = event.target.closest("[data-act]");
    const act = button && ACTS[button.dataset.act];
    if (!act) return;
    if (button.closest(".menu__list, .meter__pop")) closeMenus();
    act(button, button.closest(".turn"));
  });
}
