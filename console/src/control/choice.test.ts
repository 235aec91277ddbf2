import { expect, it } from "vitest";

import { explainCommand, scopeUrl } from "./api";
import { chosen } from "./choice";

const SCOPES = [
  { pop: "fra1", tenant: null },
  { pop: "fra1", tenant: "video.example" },
  { pop: "ams1", tenant: "a" },
];

it("selects the wanted scope, else the first of its PoP, and none of an unknown PoP", () => {
  expect(chosen(null, SCOPES)).toBe(SCOPES[0]);
  expect(chosen({ pop: "fra1", tenant: "video.example" }, SCOPES)).toBe(SCOPES[1]);
  expect(chosen({ pop: "ams1", tenant: null }, SCOPES)).toBe(SCOPES[2]);
  expect(chosen({ pop: "ams2", tenant: null }, SCOPES)).toBeNull();
  expect(chosen(null, [])).toBeNull();
});

it("escapes names in a scope's URLs", () => {
  expect(scopeUrl("rounds", { pop: "fra1", tenant: null }, { limit: "288" })).toBe("api/control/rounds?pop=fra1&limit=288");
  expect(explainCommand({ pop: "", tenant: null }, "203.0.113.0/24")).toBe("thalweg controller explain 203.0.113.0/24");
  expect(explainCommand({ pop: "fra 1'", tenant: "a.example" }, "2001:db8::/56")).toBe(String.raw`thalweg controller explain 2001:db8::/56 --pop 'fra 1'\''' --tenant a.example`);
  expect(scopeUrl("explain", { pop: "a&b", tenant: "x y" }, { prefix: "2001:db8::/56" })).toBe("api/control/explain?pop=a%26b&tenant=x+y&prefix=2001:db8::/56");
});
