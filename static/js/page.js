// What all parts of the page share: settings, words, small pieces of DOM.
export const config = JSON.parse(document.getElementById("config").textContent);
export const words = config.words;
export const $ = (selector, from = document) => from.querySelector(selector);
export const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
export const base = `/chats/${config.chat}/`;

export function icon(name, more = "") {
  const holder = document.createElement("template");
  holder.innerHTML = `<svg class="icon ${more}" viewBox="0 0 24 24" aria-hidden="true"><use href="#i-${name}"/></svg>`;
  return holder.content.firstChild;
}

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "data") Object.assign(made.dataset, value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Fragments come from our own server only, which has put them through its allow-list.
export function parse(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content;
}

export function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function codePoints(text) {
  let count = text.length;
  for (let i = 0; i < text.length; i += 1) {
    const unit = text.charCodeAt(i);
    if (unit >= 0xd800 && unit < 0xdc00 && i + 1 < text.length) {
      const low = text.charCodeAt(i + 1);
      if (low >= 0xdc00 && low < 0xe000) { count -= 1; i += 1; }
    }
  }
  return count;
}

// The index in UTF-16 units of the code point with this number.
export function unitsOf(text, points) {
  let i = 0;
  for (let left = points; left > 0 && i < text.length; left -= 1) {
    i += text.codePointAt(i) > 0xffff ? 2 : 1;
  }
  return i;
}

// Control codes as marks, one for one, as the server shows them.
export function visible(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g, (sign) => {
    const code = sign.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
  });
}

// The direction of a field by its first strong letter: dir=auto takes minutes for a long text.
export function direct(field) {
  const letter = /\p{L}/u.exec(field.value.slice(0, 1000))?.[0];
  if (!letter) field.removeAttribute("dir");
  else field.dir = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter) ? "rtl" : "ltr";
  return field;
}

export async function post(address, fields = {}) {
  const body = new URLSearchParams(fields);
  const token = $('meta[name="csrf-token"]').content;
  const answer = await fetch(address, { method: "POST", body, headers: { "X-CSRFToken": token }, credentials: "same-origin" });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(told.message || words.failed), { code: told.code });
  return told;
}

export async function get(address) {
  const answer = await fetch(address, { credentials: "same-origin" });
  if (answer.redirected && new URL(answer.url).pathname === config.login) { location.href = answer.url; }
  if (!answer.ok) throw new Error(words.failed);
  return answer.text();
}

export const store = {
  read(name, otherwise) {
    try { return JSON.parse(localStorage.getItem(`hermes:${name}`)) ?? otherwise; } catch { return otherwise; }
  },
  write(name, value) {
    try {
      if (value === null || value === "" || (Array.isArray(value) && !value.length)) localStorage.removeItem(`hermes:${name}`);
      else localStorage.setItem(`hermes:${name}`, JSON.stringify(value));
    } catch { /* full or private: kept as long as the page */ }
  },
};
