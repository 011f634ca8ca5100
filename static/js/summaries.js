// What the page shows of summaries: the pill, the note at a turn, and their dialogs.
import { $, $$, base, config, get, newId, parse, store, words } from "./page.js";
import { localise, tick } from "./clocks.js";
import { openDialog, toast } from "./dialogs.js";
import { say } from "./say.js";

const pill = $("#pill"), fold = $("#fold"), dialog = $("#dlg-fold");
const dismissedName = `pill:${config.chat}`;
const quiet = new Set(); // refs whose answer the page shows in its own way
let send = () => false;
let now = null; // the last compaction.update
let note = null; // {turn, node}: a turn did not wait for the summary that is still being written
let using = ""; // the ref under which a preview was taken

function out(frame) { if (!send(frame)) toast(words.lost); }
function sign(frame) { return `${frame.attempt ?? frame.reason}:${frame.state}`; }

// --- Pill ----------------------------------------------------------------------------------------

export function showPill(frame, html) {
  if (!frame) { now = null; pill.replaceChildren(); dropNote(); return; }
  const before = now;
  now = frame;
  const isDismissed = frame.phase === "ended" && store.read(dismissedName, "") === sign(frame);
  if (html !== undefined) {
    const fresh = parse(isDismissed ? "" : html);
    const act = pill.contains(document.activeElement) ? document.activeElement.dataset.act : null;
    tick(fresh);
    pill.replaceChildren(fresh);
    if (act) ($(`[data-act="${act}"]`, pill) ?? $("#composer")).focus({ preventScroll: true });
  }
  if (frame.phase !== "deferred") dropNote();
  if (before && sign(before) + before.phase !== sign(frame) + frame.phase && !isDismissed) say(pillWords());
  if (dialog.open) refreshFold();
  const progress = $("[data-progress]", fold);
  if (progress && frame.progress) progress.textContent = `· ≈ ${frame.progress}`;
}

// What is announced: the words, without the clock.
function pillWords() {
  const text = $(".pill__text", pill)?.cloneNode(true);
  if (!text) return "";
  for (const time of $$("time", text)) time.remove();
  return text.textContent.replace(/[\s·]+/g, " ").trim();
}

// --- The note at the turn that was let go ---------------------------------------------------------

export function showNote(frame) {
  const node = parse(frame.html).firstElementChild;
  note = { turn: frame.turn, node };
  placeNote();
  say(frame.text);
}

// Its turn may come later, and is drawn again whenever it goes on.
export function placeNote() {
  if (!note) return;
  const turn = document.getElementById(`turn-${note.turn}`) ?? $(`#pending [data-held="${note.turn}"]`);
  if (turn && note.node.parentNode !== turn) turn.append(note.node);
  else if (!turn && !note.node.isConnected) $("#notices").append(note.node);
}

function dropNote() {
  note?.node.remove();
  note = null;
}

// --- Dialogs -------------------------------------------------------------------------------------

async function showSummary(button) {
  try {
    const fresh = parse(await get(`${base}summaries/${button.dataset.summary}/`));
    localise(fresh);
    $("#summary-body").replaceChildren(fresh);
    openDialog("summary");
  } catch { toast(words.summaryFailed); }
}

function stage() { return $("[data-stage]", fold)?.dataset.stage ?? ""; }

export function showFold(html, attempt) {
  const shown = $("[data-stage]", fold);
  // What somebody is changing is not taken from under their hands.
  if (attempt && shown?.dataset.stage === "preview" && shown.dataset.attempt === String(attempt)) return;
  const focus = $("#fold-focus")?.value, isInside = fold.contains(document.activeElement);
  const fresh = parse(html);
  localise(fresh);
  fold.replaceChildren(fresh);
  const field = $("#fold-focus");
  if (field && focus && !field.value) field.value = focus;
  if (isInside && dialog.open) ($("#fold-text") ?? $(".dialog__body", fold)).focus({ preventScroll: true });
}

let reading = 0;
async function loadFold() {
  const mine = ++reading;
  try {
    const html = await get(`${base}fold/`);
    if (mine === reading) showFold(html);
  } catch { if (mine === reading) toast(words.summaryFailed); }
}

async function openFold() {
  if (stage() !== "preview" || now?.state !== "preview") await loadFold();
  if (fold.firstElementChild) openDialog("fold");
}

// While the dialog is open it follows what becomes of the attempt.
function refreshFold() {
  const isOpen = ["queued", "running"].includes(now.state);
  if (isOpen !== (stage() === "writing") && now.state !== "preview" && !using) loadFold();
}

export function showPreview(frame) {
  showFold(frame.html, frame.attempt);
  if (dialog.open) say($("#fold-t").textContent);
}

function write() {
  const focus = $("#fold-focus")?.value ?? "";
  const ref = newId();
  quiet.add(ref);
  out({ type: "compaction.preview", focus, ref });
}

function use() {
  const preview = Number($("[data-stage]", fold).dataset.attempt);
  using = newId();
  complain("");
  out({ type: "compaction.request", preview, summary: $("#fold-text").value, ref: using });
}

function complain(text) {
  const line = $("#fold-error"), field = $("#fold-text");
  if (!line) return;
  line.textContent = text;
  line.hidden = !text;
  if (text) { field.setAttribute("aria-invalid", "true"); field.focus(); } else field.removeAttribute("aria-invalid");
}

// True if the frame answers something that was asked here, and nothing else has to be shown.
export function answeredHere(frame) {
  if (frame.ref && frame.ref === using) {
    using = "";
    if (frame.type === "error") { complain(frame.message); return true; }
    dialog.close();
    fold.replaceChildren();
    return false;
  }
  if (!quiet.delete(frame.ref)) return false;
  return frame.type === "notice" && ["compaction_started", "compaction_during_answer"].includes(frame.code);
}

export const SUMMARY_ACTS = {
  fold: openFold,
  "fold-write": write,
  "fold-use": use,
  "fold-discard": () => { out({ type: "compaction.cancel" }); dialog.close(); fold.replaceChildren(); },
  compact: () => out({ type: "compaction.request", focus: "", ref: newId() }),
  "compact-cancel": () => out({ type: "compaction.cancel" }),
  "compact-why": (button) => toast(button.dataset.why, "", null, 12),
  "pill-dismiss": () => { if (now) store.write(dismissedName, sign(now)); pill.replaceChildren(); $("#composer").focus({ preventScroll: true }); },
  summary: showSummary,
  "summary-undo": (button) => { button.disabled = true; out({ type: "summary.undo", summary: Number(button.dataset.summary), ref: newId() }); },
};

export function summaries(sender) { send = sender; }

export function isDeferral(frame) { return frame.code === "compaction_deferred" && Boolean(frame.html); }

export function undoFailed() { for (const button of $$("[data-act=summary-undo]:disabled")) button.disabled = false; }
