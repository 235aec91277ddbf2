// The scope and prefix selected in the control panel, and pure functions that encode them in the
// page's address.

import type { ScopeName } from "./api";

export interface ControlChoice {
  /** The selected scope; null for the first one. */
  scope: ScopeName | null;
  /** The prefix whose explanation is open. */
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

/**
 * Returns the wanted scope if it exists, otherwise the first scope of its PoP; without a choice,
 * the first of all scopes.
 */
export function chosen<S extends ScopeName>(wanted: ScopeName | null, scopes: readonly S[]): S | null {
  if (!wanted) return scopes[0] ?? null;
  return scopes.find((scope) => isSame(scope, wanted)) ?? scopes.find(({ pop }) => pop === wanted.pop) ?? null;
}
