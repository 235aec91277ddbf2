// What of control is looked at, and how the page's address says it. Pure.

import type { ScopeName } from "./api";

export interface ControlChoice {
  /** Null: the first that there is. */
  scope: ScopeName | null;
  /** The one that is open. */
  prefix: string | null;
}

export function readControl(parameters: URLSearchParams): ControlChoice {
  const pop = parameters.get("pop");
  return { scope: pop === null ? null : { pop, tenant: parameters.get("tenant") }, prefix: parameters.get("prefix") };
}

export function writeControl(parameters: URLSearchParams, { scope, prefix }: ControlChoice): void {
  if (scope) {
    parameters.set("pop", scope.pop);
    if (scope.tenant !== null) parameters.set("tenant", scope.tenant);
  }
  if (prefix !== null) parameters.set("prefix", prefix);
}

export function isSame(one: ScopeName, other: ScopeName): boolean {
  return one.pop === other.pop && one.tenant === other.tenant;
}

/** The wanted scope if it is there; of a PoP that has no such tenant its first; without a wish the first of all. */
export function chosen<S extends ScopeName>(wanted: ScopeName | null, scopes: readonly S[]): S | null {
  if (!wanted) return scopes[0] ?? null;
  return scopes.find((scope) => isSame(scope, wanted)) ?? scopes.find(({ pop }) => pop === wanted.pop) ?? null;
}
