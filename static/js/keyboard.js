// Everything by keyboard. Single letters act while no field has the focus, and can be switched off.
import { $, $$, store } from "./page.js";
import { box, closeList, isListOpen } from "./composer.js";
import { closeMenus, isSomethingOpen, openDialog, sheet } from "./dialogs.js";
import { step } from "./sidebar.js";
import { toEnd, view } from "./scroll.js";
import { openDrawer } from "./tasks.js";

let first = ""; // of a sequence
let firstAt = 0;

function turns() { return $$("#log .turn"); }

function currentTurn() {
  const focused = document.activeElement.closest?.(".turn");
  if (focused) return focused;
  const middle = view.getBoundingClientRect().top + view.clientHeight / 2;
  return turns().filter((turn) => turn.getBoundingClientRect().top <= middle).pop() ?? turns()[0];
}

function move(by) {
  const all = turns(), focused = document.activeElement.closest?.(".turn");
  const at = focused ? all.indexOf(focused) + by : all.indexOf(currentTurn());
  const turn = all[Math.max(0, Math.min(all.length - 1, at))];
  if (!turn) return;
  turn.tabIndex = -1;
  turn.focus({ preventScroll: true });
  turn.scrollIntoView({ block: "start" });
}

function sequence(key) {
  if (key === "n") $("#new-chat").requestSubmit();
  else if (key === "l") { if (matchMedia("(max-width: 52rem)").matches) sheet("nav"); ($("#chats [aria-current]") ?? $("#chats .row__link") ?? $("#chats")).focus(); }
  else if (key === "m") box.focus();
  else if (key === "t") openDrawer();
  else return false;
  return true;
}

export function keyboard({ stop, editLast, press }) {
  const single = $("#single-keys");
  single.checked = store.read("single-keys", true);
  single.addEventListener("change", () => store.write("single-keys", single.checked));

  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.defaultPrevented) return;
    const isField = event.target.matches?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape") {
      if ($("dialog[open]")) return;
      if (isListOpen()) { closeList(); return; }
      if (closeMenus()) return;
      if (document.body.dataset.sheet !== "none") { sheet("none"); return; }
      if (isField && event.target !== box) return;
      if (stop()) event.preventDefault();
      return;
    }
    if (event.altKey && !event.ctrlKey && !event.metaKey && (event.key === "ArrowDown" || event.key === "ArrowUp")) { event.preventDefault(); step(event.key === "ArrowDown" ? 1 : -1); return; }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === box && event.key === "ArrowUp" && !box.value) { if (editLast()) event.preventDefault(); return; }
    if (isField || $("dialog[open]") || !single.checked) return;
    const key = event.key.toLowerCase();
    if (first === "g" && performance.now() - firstAt < 1500) { first = ""; if (sequence(key)) event.preventDefault(); return; }
    first = "";
    if (key === "g") { first = "g"; firstAt = performance.now(); return; }
    if (isSomethingOpen()) return;
    if (event.key === "?") { event.preventDefault(); openDialog("keys"); } else if (key === "/") { event.preventDefault(); box.focus(); } else if (event.key === "End") { event.preventDefault(); toEnd(); } else if (key === "j") move(1);
    else if (key === "k") move(-1);
    else if (key === "c") press(currentTurn(), "copy-answer");
    else if (key === "x") { const folds = $$(".tools details", currentTurn()); const open = folds.some((each) => !each.open); for (const each of folds) each.open = open; }
  });
}
