// Follows the end only while the person is there; keeps the place otherwise.
import { $, words } from "./page.js";

const NEAR = 64; // px from the end within which new text is followed
export const view = $("#scroll");
const jump = $("#jump");
let isFollowing = true;
let fresh = 0;
const arrivals = [];

export function isAtEnd() { return view.scrollHeight - view.scrollTop - view.clientHeight <= NEAR; }

export function isFollowed() { return isFollowing; }

function show() {
  const hidden = isFollowing || view.scrollHeight <= view.clientHeight + NEAR;
  jump.hidden = hidden;
  $("span", jump).textContent = fresh ? words.latestNew.replace("{n}", fresh) : words.latest;
}

export function toEnd(smooth = false) {
  isFollowing = true;
  fresh = 0;
  view.scrollTo({ top: view.scrollHeight, behavior: smooth && !matchMedia("(prefers-reduced-motion: reduce)").matches ? "smooth" : "instant" });
  show();
}

export function follow() { if (isFollowing) view.scrollTop = view.scrollHeight; else show(); }

export function arrived() { if (!isFollowing) { fresh += 1; show(); } }

export function onEnd(listener) { arrivals.push(listener); }

// Changes the log above or around what is seen, and leaves what is seen where it is.
export function keepPlace(change) {
  if (isFollowing) { change(); follow(); return; }
  const top = view.getBoundingClientRect().top;
  const seen = [...view.querySelectorAll(".turn[id]")].find((turn) => turn.getBoundingClientRect().bottom > top + 1);
  const before = seen?.getBoundingClientRect().top;
  change();
  const same = seen && (seen.isConnected ? seen : document.getElementById(seen.id));
  if (same) view.scrollTop += same.getBoundingClientRect().top - before;
  show();
}

export function scrolling() {
  view.addEventListener("scroll", () => {
    const was = isFollowing;
    isFollowing = isAtEnd();
    if (isFollowing && !was) { fresh = 0; for (const listener of arrivals) listener(); }
    show();
  }, { passive: true });
  new ResizeObserver(() => follow()).observe(view);
  new ResizeObserver(() => follow()).observe($("#log"));
  toEnd();
}
