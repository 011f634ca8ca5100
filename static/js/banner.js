// The line that tells of a lost connection, and of its return.
import { $, config, element, icon, words } from "./page.js";
import { say } from "./say.js";

const AFTER = 2500; // ms of loss before anything is said
const banner = $("#banner");
let timer = 0, hide = 0, isShown = false;

function show(kind, name, strong, rest, act = null) {
  clearTimeout(hide);
  banner.className = `banner${kind ? ` banner--${kind}` : ""}`;
  banner.replaceChildren(icon(name), element("p", {}, element("b", {}, strong), " ", ...[rest].flat()), ...(act ? [act] : []));
  banner.hidden = false;
}

export function banners(socket) {
  let ticking = 0;
  const lost = () => {
    isShown = true;
    const when = element("span", { className: "num" });
    const left = () => { const wait = socket.nextTry - Date.now(); when.textContent = wait > 400 ? words.retryIn.replace("%s", `${Math.ceil(wait / 1000)} s`) : words.trying; };
    left();
    ticking = setInterval(left, 500);
    show("", "offline", words.lost, [when, " ", words.lostThen], element("button", { className: "btn btn--sm", type: "button", onclick: () => socket.wake() }, words.tryNow));
    say(`${words.lost} ${words.lostThen}`);
  };
  socket.addEventListener("state", ({ detail: { state, code } }) => {
    if (state === "lost" && !timer && !isShown) timer = setTimeout(() => { timer = 0; lost(); }, AFTER);
    if (state === "ready") {
      clearTimeout(timer); clearInterval(ticking); timer = 0;
      if (isShown) { isShown = false; show("ok", "check", words.caughtUp, words.caughtUpThen); say(words.caughtUp); hide = setTimeout(() => { banner.hidden = true; }, 3000); }
    }
    if (state === "over") {
      clearTimeout(timer); clearInterval(ticking); timer = 0;
      const link = (href, word) => element("a", { className: "btn btn--sm", href }, word);
      if (code === 4401) show("bad", "warn", words.signedOut, words.signedOutThen, link(`${config.login}?next=${encodeURIComponent(location.pathname)}`, words.signIn));
      else if (code === 4404) show("bad", "warn", words.noChat, words.noChatThen, link(config.home, words.chatList));
      else show("bad", "warn", words.notAllowed, "", link(config.home, words.chatList));
      say(banner.textContent);
    }
  });
}
