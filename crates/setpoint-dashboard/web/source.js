// Server-sent events, for as long as somebody looks.

/** How soon it is tried again after a refusal: a browser does not do that by itself. */
const AGAIN = 3000;
/** A page that nobody has seen for so long gives up its connection: a browser has six for a host, for all of its tabs. */
const AWAY = 5000;

/** Like an EventSource, but it goes on after a refusal, and rests while nobody sees the page. */
export class Source {
  /**
   * @param {() => string} address asked for anew with each connection
   * @param {Record<string, (event: MessageEvent) => void>} hear what is done with each kind of event
   * @param {(status: string) => void} [turn] is told "live", "reconnecting", "refused" and "asleep"
   */
  constructor(address, hear, turn = () => {}) {
    this.address = address;
    this.hear = hear;
    this.turn = turn;
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {any} */
    this.timer = 0;
    this.seen = () => this.look();
    document.addEventListener("visibilitychange", this.seen);
    this.open();
    if (document.hidden) this.look();
  }

  open() {
    clearTimeout(this.timer);
    this.source?.close();
    const source = new EventSource(this.address());
    this.source = source;
    const isMine = () => this.source === source;
    source.addEventListener("open", () => isMine() && this.turn("live"));
    source.addEventListener("error", () => {
      if (!isMine()) return;
      const isRefused = source.readyState === EventSource.CLOSED;
      if (isRefused && !document.hidden) this.timer = setTimeout(() => this.open(), AGAIN);
      this.turn(isRefused ? "refused" : "reconnecting");
    });
    for (const [name, hear] of Object.entries(this.hear)) source.addEventListener(name, (event) => isMine() && hear(event));
  }

  /** Whether somebody sees the page has changed. */
  look() {
    clearTimeout(this.timer);
    if (document.hidden) this.timer = setTimeout(() => this.sleep(), AWAY);
    else if (!this.source || this.source.readyState === EventSource.CLOSED) this.open();
  }

  sleep() {
    this.source?.close();
    this.source = null;
    this.turn("asleep");
  }

  close() {
    document.removeEventListener("visibilitychange", this.seen);
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }
}
