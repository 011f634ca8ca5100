// The list of chats: fetched again when the server says that it changed.
import { $, $$, config, element, get, icon, post, store, words } from "./page.js";
import { localise } from "./clocks.js";
import { closeMenus, openDialog, sheet, sure, toast } from "./dialogs.js";

const list = $("#chats"), menu = $("#row-menu");
let timer = 0;
let archived = false;
let pages = 1; // of the list
let isRunning = () => false;
let chosen = null; // the row whose menu is open

export function refresh(soon = 200) {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    try {
      const html = await get(`/sidebar/?chat=${config.chat}${archived ? "&archived=1" : ""}${pages > 1 ? `&pages=${pages}` : ""}`);
      const focused = list.contains(document.activeElement) ? document.activeElement.closest(".row")?.dataset.chat : null;
      const top = list.scrollTop;
      list.innerHTML = html;
      list.scrollTop = top;
      localise(list);
      drafts();
      markRunning(isRunning());
      if (focused) $(`.row[data-chat="${focused}"] .row__link`, list)?.focus({ preventScroll: true });
    } catch { /* the next change asks again */ }
  }, soon);
}

// Drafts of other chats are in this browser only.
function drafts() {
  for (const row of $$(".row", list)) {
    const uid = row.dataset.chat, title = $(".row__title", row);
    if (uid === config.chat || $(".row__draft", title) || !store.read(`draft:${uid}`, "")) continue;
    title.prepend(element("span", { className: "row__draft" }, words.draft), " · ");
  }
}

// The open chat shows at once what the list shows after its next fetch.
export function markRunning(isRunning) {
  const link = $(`.row[data-chat="${config.chat}"] .row__link`, list), mark = link && $(".row__mark", link);
  if (!link || Boolean(mark) === isRunning) return;
  if (isRunning) link.append(element("span", { className: "row__mark row__mark--run" }, icon("spinner", "spin"))); else mark.remove();
}

// A chat that has just begun is not in the list yet.
export function refreshIfNew() { if (!$(`.row[data-chat="${config.chat}"]`, list)) refresh(); }

export function rows() { return $$(".row__link", list); }

export function step(by) {
  const all = rows(), at = all.findIndex((each) => each.getAttribute("aria-current") === "page");
  const next = all[at + by];
  if (next) location.href = next.href;
}

function closeMenu(back = true) {
  if (menu.hidden) return false;
  menu.hidden = true;
  const button = chosen && $(`.row[data-chat="${chosen.dataset.chat}"] .row__more`, list);
  button?.setAttribute("aria-expanded", "false");
  if (back) button?.focus({ preventScroll: true });
  return true;
}

function openMenu(button) {
  closeMenus();
  chosen = button.closest(".row");
  const pin = $("[data-row=pin] span", menu), archive = $("[data-row=archive] span", menu);
  pin.textContent = "pinned" in chosen.dataset ? pin.dataset.unpin : pin.dataset.pin;
  archive.textContent = archived ? archive.dataset.unarchive : archive.dataset.archive;
  menu.hidden = false;
  const at = button.getBoundingClientRect(), size = menu.getBoundingClientRect();
  const top = at.bottom + size.height > innerHeight ? at.top - size.height : at.bottom;
  const isRtl = document.documentElement.dir === "rtl";
  menu.style.insetBlockStart = `${Math.max(4, top)}px`;
  menu.style.insetInlineStart = `${Math.max(4, isRtl ? innerWidth - at.right : at.left)}px`;
  button.setAttribute("aria-expanded", "true");
  $("button", menu).focus({ preventScroll: true });
}

export async function change(uid, what, on, isSure = false) {
  try {
    await post(`/chats/${uid}/${what}/`, { ...(on === undefined ? {} : { on: on ? "1" : "0" }), ...(isSure ? { sure: "1" } : {}) });
  } catch (error) {
    if (error.code === "running") sure({ title: words.deleteAsk, text: error.message, go: words.delete }, () => change(uid, what, on, true));
    else toast(error.message);
    return;
  }
  if (what === "delete" || (what === "archive" && on)) {
    const undo = what === "delete" ? "undelete" : "archive";
    if (uid === config.chat) {
      sessionStorage.setItem("hermes:undo", JSON.stringify({ uid, undo, word: what === "delete" ? words.deleted : words.archived }));
      location.href = config.home;
      return;
    }
    toast(what === "delete" ? words.deleted : words.archived, words.undo, () => change(uid, undo, undo === "archive" ? false : undefined));
  }
  refresh(0);
}

export function rename(uid, title) {
  const dialog = openDialog("rename"), field = $("#rename-in"), error = $("#rename-e");
  error.hidden = true;
  field.removeAttribute("aria-invalid");
  field.value = title;
  field.select();
  $("#rename-form").onsubmit = async (event) => {
    event.preventDefault();
    try {
      await post(`/chats/${uid}/rename/`, { title: field.value });
      dialog.close();
      refresh(0);
    } catch (failure) {
      error.textContent = field.value.trim() ? failure.message : words.titleNeeded;
      error.hidden = false;
      field.setAttribute("aria-invalid", "true");
      field.focus();
    }
  };
}

export function sidebar(running) {
  isRunning = running;
  list.addEventListener("click", (event) => {
    if (event.target.closest("[data-act=chats-more]")) { pages += 1; refresh(0); return; }
    const button = event.target.closest("[data-act=row-menu]");
    if (!button) return;
    if (!menu.hidden && chosen === button.closest(".row")) closeMenu(); else openMenu(button);
  });
  menu.addEventListener("click", (event) => {
    const act = event.target.closest("[data-row]")?.dataset.row;
    if (!act || !chosen) return;
    const uid = chosen.dataset.chat;
    closeMenu();
    if (act === "rename") { sheet("none"); rename(uid, chosen.dataset.title); }
    if (act === "pin") change(uid, "pin", !("pinned" in chosen.dataset));
    if (act === "archive") change(uid, "archive", !archived);
    if (act === "delete") change(uid, "delete");
  });
  menu.addEventListener("keydown", (event) => {
    const all = $$("button", menu), at = all.indexOf(document.activeElement);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); all[(at + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length].focus(); }
    if (event.key === "Escape" || event.key === "Tab") { event.preventDefault(); event.stopPropagation(); closeMenu(); }
  });
  document.addEventListener("pointerdown", (event) => { if (!menu.hidden && !menu.contains(event.target) && !event.target.closest("[data-act=row-menu]")) closeMenu(false); });
  list.addEventListener("scroll", () => closeMenu(false), { passive: true });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-act=toggle-archived]");
    if (!button) return;
    archived = !archived;
    pages = 1;
    button.setAttribute("aria-pressed", String(archived));
    closeMenus();
    refresh(0);
  });
  drafts();
  const left = sessionStorage.getItem("hermes:undo");
  if (left) {
    sessionStorage.removeItem("hermes:undo");
    const { uid, undo, word } = JSON.parse(left);
    toast(word, words.undo, () => change(uid, undo, undo === "archive" ? false : undefined));
  }
}
