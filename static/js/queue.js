// Messages that wait, as chips above the composer.
import { $, $$, direct, element, parse, words } from "./page.js";
import { back, box, shownFor } from "./composer.js";
import { state } from "./transcript.js";
import { say } from "./say.js";

const holder = $("#queue");
let items = [];
let editing = null; // {turn, text}
let send = () => false;

export function queueSends(sender) { send = sender; }
export function lastWaiting() { return items[items.length - 1]?.turn ?? null; }

export function showQueue(frame) {
  items = frame.items ?? frame.queue ?? [];
  if (frame.html !== undefined && frame.type === "queue") draw(frame.html);
  // What waits behind an answer is a chip; what is about to be picked up stays a bubble.
  settle();
}

function draw(html) {
  const had = holder.contains(document.activeElement);
  const field = $("textarea", holder);
  if (editing && field) editing.text = field.value;
  const before = $$(".queue__item", holder).length;
  holder.replaceChildren(parse(html));
  if ($$(".queue__item", holder).length > before && state.busy) say(words.queued);
  if (editing) {
    const item = $(`[data-turn="${editing.turn}"]`, holder);
    if (item) edit(item, editing.text); else { back(editing.text); editing = null; box.focus(); return; }
  }
  if (had && !holder.contains(document.activeElement)) box.focus({ preventScroll: true });
}

export function settle() {
  for (const item of $$(".queue__item", holder)) {
    const turn = Number(item.dataset.turn);
    const isBubble = !state.busy && item.dataset.client && document.getElementById(`sent-${item.dataset.client}`);
    item.hidden = Boolean(isBubble);
    if (!isBubble) shownFor((each) => each.turn === turn || each.id === item.dataset.client);
  }
  const list = $(".queue", holder);
  if (list) list.hidden = !$(".queue__item:not([hidden])", list);
}

function edit(item, text) {
  editing = { turn: Number(item.dataset.turn), text };
  const field = element("textarea", { className: "input", rows: 2, value: text, "aria-label": words.editMessage });
  direct(field);
  const save = () => { if (field.value.trim()) send({ type: "queue.edit", turn: editing.turn, text: field.value, ref: `edit-${editing.turn}` }); close(); };
  const close = () => { editing = null; form.remove(); item.classList.remove("queue__item--editing"); box.focus(); };
  const form = element("div", { className: "queue__edit" }, field, element("div", { className: "actions" },
    element("button", { className: "btn btn--quiet btn--sm", type: "button", onclick: close }, words.cancel),
    element("button", { className: "btn btn--primary btn--sm", type: "button", onclick: save }, words.save)));
  field.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); close(); }
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); save(); }
  });
  item.classList.add("queue__item--editing");
  item.append(form);
  field.focus();
}

export function editWaiting(turn) {
  const item = $(`[data-turn="${turn}"]`, holder);
  if (item && !item.hidden) { edit(item, items.find((each) => each.turn === turn)?.text ?? $(".queue__text", item).textContent); return true; }
  return false;
}

export function queue() {
  holder.addEventListener("click", (event) => {
    const act = event.target.closest("[data-act]")?.dataset.act;
    const item = event.target.closest(".queue__item");
    if (!act || !item) return;
    event.stopPropagation();
    const turn = Number(item.dataset.turn);
    if (act === "queue-edit") editWaiting(turn);
    if (act === "queue-delete") send({ type: "queue.delete", turn });
    if (act === "queue-promote") send({ type: "queue.promote", turn });
  });
}
