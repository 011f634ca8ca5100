// Dialogs, sheets, menus and toasts: what lies over the page, and the way back from it.
import { $, $$, element, words } from "./page.js";

const wide = matchMedia("(min-width: 52.0625rem)");
let opener = null;

export function openDialog(name) {
  const dialog = $(`#dlg-${name}`);
  if (dialog && !dialog.open) dialog.showModal();
  return dialog;
}

// Asks before something that cannot be taken back; nothing is done by a key that was held.
export function sure({ title, text, go, command = "" }, act) {
  const dialog = openDialog("sure"), button = $("#sure-go"), shown = $("#sure-c");
  $("#sure-t").textContent = title;
  $("#sure-p").textContent = text;
  shown.textContent = command;
  shown.hidden = !command;
  button.textContent = go;
  button.onclick = () => { dialog.close(); act(); };
}

export function sheet(name) {
  const body = document.body;
  if ((body.dataset.sheet || "none") === name) return;
  if (name !== "none") opener = document.activeElement;
  body.dataset.sheet = name;
  for (const button of $$("[data-sheet-open]")) button.setAttribute("aria-expanded", String(name === button.dataset.sheetOpen));
  $("#main").inert = name === "drawer" || (name !== "none" && !wide.matches);
  if (name === "drawer") $("[data-act=tasks-close]").focus({ preventScroll: true });
  else if (name === "nav") $(".side [data-sheet-close]").focus({ preventScroll: true });
  else opener?.focus?.({ preventScroll: true });
}

export function closeMenus(but = null) {
  let closed = false;
  for (const menu of $$("details.menu[open], details.meter[open]")) {
    if (menu === but || menu.contains(but)) continue;
    if (menu.contains(document.activeElement)) $("summary", menu).focus({ preventScroll: true });
    menu.open = false;
    closed = true;
  }
  return closed;
}

export function isSomethingOpen() {
  return Boolean($("dialog[open]") || $("details.menu[open], details.meter[open]") || !$("#row-menu").hidden || (document.body.dataset.sheet ?? "none") !== "none");
}

export function toast(text, act = "", does = null, seconds = 8) {
  const shown = element("div", { className: "toast" }, element("span", {}, text));
  if (does) shown.append(element("button", { className: "btn btn--quiet btn--sm", type: "button", onclick: () => { shown.remove(); does(); } }, act));
  $("#toasts").replaceChildren(shown);
  let timer = setTimeout(() => shown.remove(), seconds * 1000);
  shown.addEventListener("pointerenter", () => clearTimeout(timer));
  shown.addEventListener("focusin", () => clearTimeout(timer));
  shown.addEventListener("pointerleave", () => { timer = setTimeout(() => shown.remove(), 3000); });
}

export async function copy(text, button) {
  const word = button && $("span", button);
  try {
    await navigator.clipboard.writeText(text);
    if (word && button.hasAttribute("data-copy")) { word.textContent = words.copied; setTimeout(() => { word.textContent = words.copy; }, 1500); } else toast(words.copied, "", null, 2);
  } catch { toast(words.copyFailed); }
}

export function dialogs() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button, a, summary");
    if (!button) return;
    if (button.dataset.dialog) { closeMenus(); openDialog(button.dataset.dialog); }
    if ("dialogClose" in button.dataset) button.closest("dialog")?.close();
    if (button.dataset.sheetOpen) sheet(button.dataset.sheetOpen);
    if ("sheetClose" in button.dataset) sheet("none");
  });
  for (const dialog of $$("dialog")) dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.addEventListener("pointerdown", (event) => closeMenus(event.target));
  wide.addEventListener("change", () => sheet("none"));
}
