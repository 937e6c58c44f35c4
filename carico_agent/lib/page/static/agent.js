// The connection to the agent: the token, single questions, and the stream of statuses, mended when it breaks.

const FIRST_DELAY_MS = 400;
const MAX_DELAY_MS = 5000;
const SILENCE_MS = 8000; // a stream without a line for this long is dead: the agent sends one a second
const ANSWER_MS = 10000;
const KEY = "carico-token";

export class Refused extends Error {}

export class Agent {
  #token = "";
  #stop = null;

  // The token stands behind # in the address, which browsers send nowhere. It is taken out of the address at once.
  takeToken() {
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given !== null) {
      this.setToken(given);
      history.replaceState(null, "", location.pathname);
    } else this.#token = sessionStorage.getItem(KEY) ?? "";
  }

  setToken(token) {
    this.#token = token;
    sessionStorage.setItem(KEY, token);
  }

  async ask(path) {
    const response = await this.#fetch(path, AbortSignal.timeout(ANSWER_MS));
    if (!response.ok) throw new Error(`${path}: HTTP status ${response.status}`);
    return response.json();
  }

  async #fetch(path, signal) {
    const headers = this.#token ? { Authorization: `Bearer ${this.#token}` } : {};
    const response = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
    if (response.status === 401) throw new Refused("the token is missing or wrong");
    return response;
  }

  // Calls onOpen after each connection, onStatus per line and onLost(reason) when it breaks; returns after stop()
  // or when the token is refused (Refused).
  async watch({ onOpen, onStatus, onLost }) {
    const stop = new AbortController();
    this.#stop = stop;
    let delay_ms = FIRST_DELAY_MS;
    while (!stop.signal.aborted) {
      try {
        await this.#stream(stop.signal, onOpen, (status) => {
          delay_ms = FIRST_DELAY_MS;
          onStatus(status);
        });
        if (!stop.signal.aborted) onLost("the agent ended the connection");
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Refused) throw error;
        onLost("no answer");
      }
      await pause(delay_ms, stop.signal);
      delay_ms = Math.min(2 * delay_ms, MAX_DELAY_MS);
    }
  }

  stop() {
    this.#stop?.abort();
  }

  async #stream(stop, onOpen, onStatus) {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const response = await this.#fetch("/v1/watch", AbortSignal.any([stop, silence.signal]));
      if (!response.ok) throw new Error(`HTTP status ${response.status}`);
      onOpen();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ; ) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        const newest = lines.filter(Boolean).pop(); // who was away gets the newest only
        if (newest) onStatus(JSON.parse(newest));
      }
    } finally {
      clearTimeout(timer);
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
