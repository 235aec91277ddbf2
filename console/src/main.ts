// The page: a selector for presentations, two players and, below them, the panels for requests,
// networks, sockets, responses and control.

import "./style.css";

import { type Catalogue, type Config, edgeUrl, fetchCatalogue, fetchClockOffsetMs, fetchConfig, followRecords } from "./api";
import { type Address, BELOW, type Below, choiceKey, type Format, parseChoice, type Presentation, presentations, readAddress, resolve, writeAddress } from "./choice";
import type { ControlChoice } from "./control/choice";
import { ControlPanel } from "./control/panel";
import { Header } from "./header";
import { NetworksPanel } from "./networks/panel";
import { HISTORY_STEP_MS, PlayerPanel } from "./player/panel";
import { RequestsPanel } from "./requests/panel";
import type { ResponsesChoice } from "./responses/choice";
import { ResponsesPanel } from "./responses/panel";
import { SocketsPanel } from "./sockets/panel";
import { el } from "./ui/element";
import { Tabs } from "./ui/tabs";

const TITLES: Record<Below, string> = {
  requests: "Requests",
  networks: "Networks",
  sockets: "Sockets",
  responses: "Responses",
  control: "Control",
};

/** Interval between updates of the figures. */
const SHOW_EVERY_MS = 250;

/** Interval between requests for the catalogue, and for the configuration until it arrives. */
const CATALOGUE_EVERY_MS = 4000;

/** Interval between comparisons of this machine's clock with the edge's. */
const CLOCK_EVERY_MS = 60_000;

class Page {
  readonly #address: Address = readAddress(location.search);
  readonly #header = new Header((key) => this.#choose(key));
  readonly #players: Record<Format, PlayerPanel> = {
    hls: this.#player("hls"),
    dash: this.#player("dash"),
  };
  readonly #below = new Tabs(
    BELOW.map((name) => [name, TITLES[name]] as const),
    (name) => this.#showBelow(name),
  );
  readonly #requests = new RequestsPanel(this.#below.head("requests"));
  readonly #networks = new NetworksPanel(this.#below.head("networks"));
  readonly #sockets = new SocketsPanel(this.#below.head("sockets"));
  readonly #responses = new ResponsesPanel(this.#below.head("responses"), (choice) => this.#chooseResponses(choice));
  readonly #control = new ControlPanel(this.#below.head("control"), (choice) => this.#chooseControl(choice));
  readonly #main = el("main");
  #edge: string | null = null;
  /** The available panels below the players; null until known. */
  #offered: readonly Below[] | null = null;
  #clock_offset_ms = 0;
  #clock_read_ms = Number.NEGATIVE_INFINITY;
  #catalogue: Catalogue | null = null;
  #playing: Presentation | null = null;

  #player(format: Format): PlayerPanel {
    const on = this.#address.only === null || this.#address.only === format;
    return new PlayerPanel(format, on, () => this.#switched());
  }

  start(): void {
    const panels = { requests: this.#requests, networks: this.#networks, sockets: this.#sockets, responses: this.#responses, control: this.#control };
    for (const name of BELOW) this.#below.add(name, panels[name].element);
    this.#main.append(this.#players.hls.element, this.#players.dash.element, ...BELOW.map((name) => panels[name].element));
    document.body.append(this.#header.element, this.#main);
    this.#settleBelow();
    addEventListener("popstate", () => this.#goBack());
    setInterval(() => this.#eachPlayer((player) => player.show()), SHOW_EVERY_MS);
    setInterval(() => this.#eachPlayer((player) => player.remember()), HISTORY_STEP_MS);
    void this.#keepUpToDate();
  }

  #eachPlayer(act: (player: PlayerPanel) => void): void {
    act(this.#players.hls);
    act(this.#players.dash);
  }

  async #keepUpToDate(): Promise<never> {
    for (;;) {
      try {
        await this.#update();
        this.#header.showFault(null);
      } catch (error) {
        this.#header.showFault(error instanceof Error ? error.message : String(error));
      }
      await new Promise((done) => setTimeout(done, CATALOGUE_EVERY_MS));
    }
  }

  async #update(): Promise<void> {
    if (!this.#offered) this.#configure(await fetchConfig());
    if (this.#edge === null) return;
    this.#catalogue = await fetchCatalogue(this.#edge).catch(() => {
      throw new Error(`the edge at ${this.#edge} does not serve its catalogue; retrying`);
    });
    if (performance.now() - this.#clock_read_ms > CLOCK_EVERY_MS) {
      this.#clock_offset_ms = await fetchClockOffsetMs(this.#edge);
      this.#clock_read_ms = performance.now();
    }
    this.#settle();
  }

  #configure(config: Config): void {
    this.#edge = edgeUrl(config, location);
    const has_edge = this.#edge !== null;
    this.#header.showConfig(config.version, has_edge);
    for (const player of [this.#players.hls, this.#players.dash]) player.element.hidden = !has_edge;
    this.#main.toggleAttribute("data-plays-nothing", !has_edge);
    this.#sockets.setAgent(config.telemetry);
    this.#responses.setAgent(config.telemetry);
    const is_there: Record<Below, boolean> = {
      requests: has_edge,
      networks: has_edge,
      // If there is an edge, offer these panels even without an agent; they then state that the
      // agent is missing.
      sockets: has_edge || config.telemetry,
      responses: has_edge || config.telemetry,
      control: config.control ?? false,
    };
    this.#offered = BELOW.filter((name) => is_there[name]);
    if (has_edge) followRecords([this.#requests, this.#networks]);
    this.#settleBelow();
  }

  /** Applies the choice and the catalogue to the players. */
  #settle(): void {
    const edge = this.#edge;
    if (!this.#catalogue || edge === null) return;
    const available = presentations(this.#catalogue);
    const found = resolve(this.#address.choice, available);
    this.#header.showCatalogue(available, this.#address.choice ?? found, this.#catalogue.faults ?? []);
    // If a channel disappears for a while, the players keep it and report that it is missing.
    if (!found || (this.#playing && choiceKey(found) === choiceKey(this.#playing))) return;
    this.#playing = found;
    this.#header.showLinks(edge, found);
    const now_ms = () => Date.now() + this.#clock_offset_ms;
    this.#eachPlayer((player) => player.play({ presentation: found, edge, now_ms }));
  }

  #choose(key: string): void {
    this.#address.choice = parseChoice(key);
    this.#writeAddress();
    this.#settle();
  }

  #switched(): void {
    const { hls, dash } = this.#players;
    this.#address.only = hls.on === dash.on ? null : hls.on ? "hls" : "dash";
    this.#writeAddress();
  }

  #showBelow(name: Below): void {
    this.#address.show = name;
    this.#settleBelow();
    this.#writeAddress(true);
  }

  #chooseResponses(choice: ResponsesChoice): void {
    this.#address.responses = choice;
    this.#responses.choose(choice);
    this.#writeAddress(true);
  }

  #chooseControl(choice: ControlChoice): void {
    this.#address.control = choice;
    this.#control.choose(choice);
    this.#writeAddress(true);
  }

  /** Applies the address to the panels below the players. */
  #settleBelow(): void {
    const { responses, control } = this.#address;
    const offered = this.#offered ?? BELOW.filter((name) => name !== "control");
    // Do not show an unavailable panel, such as control without a controller.
    const is_known = this.#offered !== null;
    const show = is_known && !offered.includes(this.#address.show) ? (offered[0] ?? "requests") : this.#address.show;
    for (const name of BELOW) this.#below.offer(name, offered.includes(name));
    this.#main.dataset.below = show;
    this.#below.show(show);
    this.#networks.draw();
    this.#responses.choose(responses);
    this.#sockets.show(show === "sockets");
    this.#responses.show(show === "responses");
    this.#control.choose(control);
    this.#control.show(show === "control" && is_known);
  }

  /**
   * Applies the page's address after back or forward navigation, which switches panels but does not
   * interrupt playback.
   */
  #goBack(): void {
    const { show, responses, control } = readAddress(location.search);
    Object.assign(this.#address, { show, responses, control });
    this.#settleBelow();
    this.#writeAddress();
  }

  /** Writes the page's address; `is_step` adds a step to the browser's history. */
  #writeAddress(is_step = false): void {
    const url = `${location.pathname}${writeAddress(this.#address)}`;
    if (is_step && url !== location.pathname + location.search) history.pushState(null, "", url);
    else history.replaceState(null, "", url);
  }
}

new Page().start();
