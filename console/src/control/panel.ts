// The control panel: the state of a scope, its prefixes and rounds, one prefix, and the edges.
//
// The scopes are polled. The selected scope's other data is requested when its window or bundle
// changes.

import "./style.css";
import "./charts.css";
import "./prefixes.css";
import "./rounds.css";
import "./explanation.css";
import "./edges.css";

import { Poller } from "../telemetry/poller";
import { QueryDisclosure } from "../telemetry/query";
import { el, replaceChildren, setAttribute, setText } from "../ui/element";
import { fetchScopes, type Scope, SCOPES_URL } from "./api";
import { chosen, type ControlChoice } from "./choice";
import { EdgesPane } from "./edges";
import { ExplanationPane } from "./explanation";
import { figures, time } from "./figures";
import { curlCommand } from "./pane";
import { PrefixesPane } from "./prefixes";
import { RoundsPane } from "./rounds";

const POLL_MS = 2000;

const NO_TENANT = "all hosts together";

export class ControlPanel {
  readonly element: HTMLElement;

  readonly #chosen: (choice: ControlChoice) => void;
  readonly #state = el("span", { class: "state", role: "status", "data-testid": "control-state" });
  readonly #pop = el("select", { "aria-label": "PoP", "data-testid": "control-pop" });
  readonly #tenant = el("select", { "aria-label": "tenant", "data-testid": "control-tenant" });
  readonly #query = new QueryDisclosure();
  readonly #figures = el("dl", { class: "totals", "data-testid": "control-figures" });
  readonly #prefixes = new PrefixesPane((prefix) => this.#open(prefix));
  readonly #rounds = new RoundsPane((prefix) => this.#open(prefix));
  readonly #explanation = new ExplanationPane(() => this.#open(null));
  readonly #edges = new EdgesPane();
  readonly #poller = new Poller<{ scopes: Scope[] }>({
    ask: (signal) => fetchScopes(signal),
    answered: ({ scopes }) => {
      this.#scopes = scopes;
      this.#failure = null;
      this.#answers += 1;
      this.#settle();
    },
    failed: (message) => {
      this.#failure = message;
      this.#drawState();
    },
  });

  #choice: ControlChoice = { scope: null, prefix: null };
  /** Scopes; null until they arrive. */
  #scopes: Scope[] | null = null;
  #failure: string | null = null;
  #answers = 0;
  #offered = "";
  #shown = false;

  /** `head` is placed at the start of the panel's head; `chosen` receives the viewer's choice. */
  constructor(head: HTMLElement, chosen: (choice: ControlChoice) => void) {
    this.#chosen = chosen;
    this.#query.show(curlCommand(SCOPES_URL));
    // Keep the prefix when the PoP changes.
    this.#pop.onchange = () => this.#chosen({ ...this.#choice, scope: { pop: this.#pop.value, tenant: null } });
    this.#tenant.onchange = () => {
      const scope = this.#scopes?.find(({ pop, tenant }) => pop === this.#pop.value && tenantKey(tenant) === this.#tenant.value);
      if (scope) this.#chosen({ ...this.#choice, scope: { pop: scope.pop, tenant: scope.tenant } });
    };
    this.element = el(
      "section",
      { class: "records control", "aria-label": "control" },
      el("header", {}, head, this.#state, this.#query.element, this.#pop, this.#tenant),
      this.#figures,
      el("div", { class: "panes" }, this.#prefixes.element, this.#rounds.element, this.#explanation.element, this.#edges.element),
    );
    this.#settle();
  }

  /** Starts updates when the panel is shown, and stops them when it is hidden. */
  show(shown: boolean): void {
    if (this.#shown === shown) return;
    this.#shown = shown;
    if (shown) return this.#poller.start(POLL_MS);
    this.#poller.stop();
    for (const pane of [this.#prefixes, this.#rounds, this.#explanation, this.#edges]) pane.stop();
  }

  choose(choice: ControlChoice): void {
    this.#choice = choice;
    this.#settle();
  }

  #open(prefix: string | null): void {
    this.#chosen({ ...this.#choice, prefix });
  }

  /** Applies the choice and the newest scopes to the panel. */
  #settle(): void {
    const scope = this.#scopes && chosen(this.#choice.scope, this.#scopes);
    this.#drawState();
    this.#drawChooser(scope);
    this.#drawFigures(scope);
    this.#prefixes.mark(this.#choice.prefix);
    if (scope) this.#follow(scope);
    else if (this.#scopes) for (const pane of [this.#prefixes, this.#rounds, this.#explanation, this.#edges]) pane.clear();
  }

  #follow(scope: Scope): void {
    if (!this.#shown) return;
    const version = `${scope.window} ${scope.bundle}`;
    this.#prefixes.follow(scope, version);
    this.#rounds.follow(scope, version);
    // A rollout advances between rounds, so request the edges after every poll of the scopes.
    this.#edges.follow(scope, String(this.#answers));
    if (this.#choice.prefix === null) this.#explanation.clear();
    else this.#explanation.follow(scope, this.#choice.prefix, version);
  }

  #drawState(): void {
    const [phase, words] = this.#stateText();
    setText(this.#state, words);
    setAttribute(this.#state, "data-phase", phase);
  }

  #stateText(): [phase: string, words: string] {
    if (this.#failure !== null) return ["failed", this.#failure];
    if (this.#scopes === null) return ["starting", "connecting"];
    const scope = chosen(this.#choice.scope, this.#scopes);
    if (scope) return ["playing", `decided up to ${time((scope.window + 1) * scope.window_s)}`];
    const { scope: wanted } = this.#choice;
    return ["starting", wanted && this.#scopes.length > 0 ? `no data on ${wanted.pop}` : "no window has been decided yet"];
  }

  #drawChooser(scope: Scope | null): void {
    const all = this.#scopes ?? [];
    const pops = [...new Set(all.map(({ pop }) => pop))];
    const tenants = all.filter(({ pop }) => pop === scope?.pop).map(({ tenant }) => tenant);
    const wanted = scope?.pop ?? this.#choice.scope?.pop ?? "";
    // Rebuild the lists only if they changed, because rebuilding closes an open list.
    const offered = JSON.stringify([pops, tenants, wanted, scope?.tenant]);
    if (offered === this.#offered) return;
    this.#offered = offered;
    const absent = pops.includes(wanted) ? [] : [el("option", { value: wanted }, wanted || "no PoP")];
    replaceChildren(this.#pop, ...absent, ...pops.map((pop) => el("option", { value: pop }, pop || "no name")));
    this.#pop.value = wanted;
    this.#pop.disabled = pops.length === 0;
    replaceChildren(this.#tenant, ...tenants.map((tenant) => el("option", { value: tenantKey(tenant) }, tenant ?? NO_TENANT)));
    this.#tenant.value = tenantKey(scope?.tenant ?? null);
    this.#tenant.hidden = tenants.length < 2 && (tenants[0] ?? null) === null;
  }

  #drawFigures(scope: Scope | null): void {
    const pairs = scope ? figures(scope) : [];
    this.#figures.replaceChildren(
      ...pairs.map(({ label, value, title, is_alert }) => el("div", { title }, el("dt", {}, label), el("dd", is_alert ? { "data-alert": "" } : {}, value))),
    );
    this.#figures.hidden = pairs.length === 0;
  }
}

/** Returns a key that distinguishes "no tenant" from a tenant with an empty name. */
function tenantKey(tenant: string | null): string {
  return tenant === null ? "" : `=${tenant}`;
}
