// One connection, kept: frames in and out, back-off with full jitter, acknowledgements.
const FIRST = 250, LONGEST = 10000; // ms between tries
const HANDSHAKE = 8000, QUIET = 30000, ANSWER = 10000; // ms
const FINAL = new Set([4401, 4403, 4404]);

export class Socket extends EventTarget {
  #address; #socket = null; #tries = 0; #timer = 0; #watch = 0; #quiet = 0; #acked = 0; #taken = 0; #ackTimer = 0; #wait = 0;
  isReady = false; isOver = false; nextTry = 0;

  constructor(address) {
    super();
    this.#address = address;
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.wake(); });
    addEventListener("online", () => this.wake());
    addEventListener("offline", () => { if (this.#socket) this.#lost(1006); });
    addEventListener("pagehide", () => { this.#socket?.close(1000); });
    addEventListener("pageshow", (event) => { if (event.persisted) this.wake(); });
  }

  connect() {
    clearTimeout(this.#timer);
    if (this.isOver || this.#socket) return;
    this.nextTry = 0;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    let socket;
    try { socket = new WebSocket(`${scheme}//${location.host}${this.#address}`); } catch { this.#again(); return; }
    this.#socket = socket;
    this.#acked = this.#taken = 0;
    this.#watch = setTimeout(() => this.#lost(1006), HANDSHAKE);
    socket.onmessage = (event) => { if (socket === this.#socket) this.#take(event.data); };
    socket.onclose = (event) => { if (socket === this.#socket) this.#lost(event.code); };
    this.#tell("connecting");
  }

  wake() {
    if (this.isOver) return;
    if (!this.#socket) { this.#tries = 0; this.connect(); } else this.#ping();
  }

  // Throws away what is here and asks for all of it: hello says what is.
  resync() { if (this.#socket) { this.#tries = 0; this.#lost(1001); } }

  send(frame) {
    if (!this.isReady || this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  #take(data) {
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => this.#ping(), QUIET);
    let frame;
    try { frame = JSON.parse(data); } catch { this.resync(); return; }
    if (typeof frame.n === "number") this.#taken = frame.n;
    if (frame.type === "hello") { clearTimeout(this.#watch); this.#watch = 0; this.#tries = 0; this.#wait = 0; this.isReady = true; this.#tell("ready"); }
    else if (frame.type === "pong") { clearTimeout(this.#watch); this.#watch = 0; }
    else if (frame.type === "bye") this.#wait = (frame.retry_after || 0) * 1000;
    this.dispatchEvent(new CustomEvent("frame", { detail: frame }));
    if (!this.#ackTimer) this.#ackTimer = setTimeout(() => this.#ack(), 250);
  }

  #ack() {
    this.#ackTimer = 0;
    if (this.#taken > this.#acked && this.send({ type: "ack", n: this.#taken })) this.#acked = this.#taken;
  }

  #ping() {
    if (!this.isReady || this.#watch) return;
    if (this.send({ type: "ping", nonce: String(Date.now()) })) this.#watch = setTimeout(() => this.#lost(1006), ANSWER);
  }

  #lost(code) {
    clearTimeout(this.#watch); clearTimeout(this.#quiet); clearTimeout(this.#ackTimer);
    this.#watch = this.#ackTimer = 0;
    const socket = this.#socket;
    this.#socket = null;
    this.isReady = false;
    if (socket) { socket.onmessage = socket.onclose = null; try { socket.close(); } catch { /* closed already */ } }
    if (FINAL.has(code)) { this.isOver = true; this.#tell("over", code); return; }
    this.#tell("lost", code);
    this.#again();
  }

  #again() {
    const ceiling = Math.min(LONGEST, FIRST * 2 ** Math.min(this.#tries, 10));
    this.#tries += 1;
    const delay = Math.max(this.#wait, 0) + Math.random() * ceiling;
    this.#wait = 0;
    this.nextTry = Date.now() + delay;
    this.#timer = setTimeout(() => this.connect(), delay);
  }

  #tell(state, code = 0) { this.dispatchEvent(new CustomEvent("state", { detail: { state, code } })); }
}
