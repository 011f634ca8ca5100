// The polite status region: fed once a sentence and once a change of state, never per token.
import { $ } from "./page.js";

const region = $("#say");
const waiting = [];
let timer = 0;
let unsaid = "";

// Without the marks of Markdown; an underscore inside of a name is part of it.
const plain = (text) => text.replace(/[`*#|>]+|(?<!\w)_+|_+(?!\w)/g, " ").trim();

function next() {
  timer = 0;
  if (!waiting.length) return;
  region.textContent = waiting.splice(0).join(" ").slice(-600);
  timer = setTimeout(next, 1200);
}

export function say(text) {
  if (!text) return;
  waiting.push(text);
  if (!timer) timer = setTimeout(next, 150);
}

export const speech = {
  begin() { unsaid = ""; },
  add(text) {
    unsaid += text;
    const end = Math.max(unsaid.lastIndexOf(". "), unsaid.lastIndexOf("? "), unsaid.lastIndexOf("! "), unsaid.lastIndexOf("\n"));
    if (end < 0 && unsaid.length < 400) return;
    const cut = end < 0 ? unsaid.length : end + 1;
    say(plain(unsaid.slice(0, cut)));
    unsaid = unsaid.slice(cut);
  },
  end() { say(plain(unsaid)); unsaid = ""; },
};
