//! What Fastly's VCL and that of Varnish 2 and 3 have under names that mean nothing here, and what there is instead.
//!
//! One table, which the lexer, the parser and the checker ask before they look for a name that is near. Sources: Fastly's
//! VCL reference, vcl(7) of Varnish 3.0 and Varnish's "Upgrading to Varnish 4". It makes help better and decides nothing.

use crate::fault::suggest;

/// Where a name stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Right behind the `#` of a comment.
    Comment,
    /// Where a declaration begins.
    Declaration,
    /// After `sub`.
    Subroutine,
    /// Where a statement begins.
    Statement,
    /// Within the brackets of `return`.
    Action,
    /// After the dot of a backend's or a probe's attribute.
    Attribute,
    /// A variable, a function, or a module.
    Name,
}

/// What there is here instead of `name`; a pattern `a.*` is about `a` too.
pub(crate) fn advice(place: Place, name: &str) -> Option<&'static str> {
    let fits = |known: &str| match known.strip_suffix(".*") {
        Some(scope) => name.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
        None => known == name,
    };
    IDIOMS.iter().find(|(at, known, _)| *at == place && fits(known)).map(|(_, _, advice)| *advice)
}

/// [`advice`], else what is near `name` among what is known there.
pub(crate) fn help<'a>(
    place: Place,
    name: &str,
    known: impl IntoIterator<Item = &'a str, IntoIter: Clone>,
) -> String {
    advice(place, name).map_or_else(|| suggest(name, known.into_iter()), str::to_owned)
}

/// Of several that fit, the first is told.
static IDIOMS: &[(Place, &str, &str)] = &{
    use Place::{Action, Attribute, Comment, Declaration, Name, Statement, Subroutine};
    [
        (
            Comment,
            "FASTLY",
            "Fastly puts code there; here the built-in policy goes on where a subroutine returns nothing",
        ),
        (Declaration, "table", "there are no tables; write if and elseif"),
        (
            Declaration,
            "director",
            "new NAME = directors.random(); in vcl_init makes one, NAME.add_backend(…) fills it",
        ),
        (Declaration, "penaltybox", "there is no rate limiting"),
        (Declaration, "ratecounter", "there is no rate limiting"),
        (Declaration, "pragma", "leave it out"),
        (Subroutine, "vcl_fetch", "it is vcl_backend_response, and in it req is bereq"),
        (
            Subroutine,
            "vcl_error",
            "it is vcl_synth for what the policy answers, vcl_backend_error for a fetch that failed",
        ),
        (
            Subroutine,
            "vcl_log",
            "thalweg log has a record of each response; std.log(…) in vcl_deliver adds lines to it",
        ),
        (Subroutine, "vcl_prehash", "it is a part of vcl_recv"),
        (Statement, "remove", "it is unset since VCL 4.0"),
        (Statement, "error", "it is return (synth(STATUS, REASON)); since VCL 4.0"),
        (Statement, "esi", "there is no ESI"),
        (Statement, "goto", "there is no goto; split the subroutine and call it"),
        (Statement, "declare", "there are no local variables; use a header"),
        (Statement, "purge", "it is return (purge); in vcl_recv since VCL 4.0"),
        (Statement, "restart", "it is return (restart);"),
        (Statement, "rollback", "it is std.rollback(req);"),
        (Statement, "log", "it is std.log(TEXT);"),
        (Statement, "add", "header.append(resp.http.NAME, TEXT); of the module header adds one field more"),
        (Statement, "switch", "there is no switch; write if and elseif"),
        (Statement, "synthetic", "it has brackets since VCL 4.0: synthetic({\"…\"});"),
        (
            Statement,
            "synthetic.base64",
            "it is synthetic(blob.transcode(decoding = BASE64, encoded = TEXT));",
        ),
        (Statement, "pragma", "leave it out"),
        (Action, "hit_for_pass", "it is pass(120s), in vcl_backend_response"),
        (Action, "deliver_stale", "what is stale is delivered in its grace, by itself"),
        (Action, "upgrade", "it is pipe, and in vcl_pipe set bereq.http.Connection = \"upgrade\";"),
        (Action, "lookup", "in vcl_recv it is hash since VCL 4.0"),
        (Attribute, "ssl", NO_TLS),
        (Attribute, "ssl_cert_hostname", NO_TLS),
        (Attribute, "ssl_check_cert", NO_TLS),
        (Attribute, "ssl_sni_hostname", NO_TLS),
        (Attribute, "ssl_ca_cert", NO_TLS),
        (Attribute, "min_tls_version", NO_TLS),
        (Attribute, "max_tls_version", NO_TLS),
        (
            Attribute,
            "share_key",
            "leave it out: backends that are declared alike share health and connections",
        ),
        (Attribute, "dynamic", "leave it out: a name is looked up again and again"),
        (Attribute, "always_use_host_header", "set bereq.http.Host = NAME; in vcl_backend_fetch"),
        (Attribute, "fetch_timeout", "there are .first_byte_timeout and .between_bytes_timeout"),
        (Attribute, "bypass_local_route_table", "leave it out"),
        (Attribute, "dummy", "leave .probe out: a backend without one is healthy"),
        (Attribute, "quorum", "it is .threshold"),
        (Name, "if", "there is no if(…) as a value: set it within if (…) { } else { }"),
        (
            Name,
            "subfield",
            "cookie.get(NAME) of the module cookie reads a cookie, regsub(TEXT, REGEX, \"\\1\") any part",
        ),
        (Name, "urlencode", "it is blob.transcode(encoding = URL, encoded = TEXT)"),
        (Name, "urldecode", "it is blob.transcode(decoding = URL, encoded = TEXT)"),
        (Name, "substr", "regsub(TEXT, REGEX, \"\\1\") gives a part of a text"),
        (Name, "randomint", "it is std.real2integer(std.random(FROM, TO), 0)"),
        (Name, "randombool", "it is std.random(0.0, 1.0) < 0.5"),
        (Name, "randomstr", "there is none; req.xid names the request"),
        (Name, "uuid.*", "there is none; req.xid names the request"),
        (Name, "boltsort.sort", "it is std.querysort(TEXT)"),
        (Name, "strftime", "it is std.strftime(TIME, FORMAT)"),
        (
            Name,
            "setcookie.*",
            "the module cookie reads cookies; regsub(resp.http.Set-Cookie, REGEX, \"\\1\") reads others",
        ),
        (Name, "table.*", "there are no tables; write if and elseif"),
        (Name, "digest.base64", "it is blob.transcode(encoding = BASE64, encoded = TEXT)"),
        (Name, "digest.base64_decode", "it is blob.transcode(decoding = BASE64, encoded = TEXT)"),
        (Name, "digest.base64url", "it is blob.transcode(encoding = BASE64URL, encoded = TEXT)"),
        (Name, "digest.base64url_decode", "it is blob.transcode(decoding = BASE64URL, encoded = TEXT)"),
        (Name, "digest.*", "there are no digests and signatures; check these before the edge"),
        (Name, "crypto.*", "there are no ciphers"),
        (Name, "time.elapsed.*", "it is now - req.time, and the record has ttfb_us and duration_us"),
        (Name, "time.start.*", "it is req.time"),
        (
            Name,
            "time.*",
            "times are joined and compared as they are: now + 5s, now - req.time; std.time reads one",
        ),
        (Name, "std.atoi", "it is std.integer(TEXT, FALLBACK)"),
        (Name, "std.strtol", "it is std.integer(TEXT, FALLBACK)"),
        (Name, "std.atof", "it is std.real(TEXT, FALLBACK)"),
        (Name, "std.strtof", "it is std.real(TEXT, FALLBACK)"),
        (Name, "std.itoa", "an INT is a text where one is wanted"),
        (Name, "std.prefixof", "it is TEXT ~ \"^…\""),
        (Name, "std.suffixof", "it is TEXT ~ \"…$\""),
        (Name, "std.str2ip", "it is std.ip(TEXT, FALLBACK)"),
        (Name, "ratelimit.*", "there is no rate limiting"),
        (Name, "tls.*", "the edge speaks no TLS"),
        (Name, "fastly.*", "it is Fastly's own"),
        (Name, "fastly_info.*", "the record has cache and, in tcp, what the kernel says"),
        (Name, "waf.*", "it is Fastly's own"),
        (Name, "workspace.*", "it is Fastly's own"),
        (Name, "geoip.*", "there is client.geo.*"),
        (Name, "var.*", "there are no local variables; use a header"),
        (Name, "re.group.*", "regsub(TEXT, REGEX, \"\\1\") gives what a group matched"),
        (Name, "req.request", "it is req.method since VCL 4.0"),
        (Name, "bereq.request", "it is bereq.method since VCL 4.0"),
        (Name, "req.backend.healthy", "it is std.healthy(req.backend_hint)"),
        (Name, "req.backend", "it is req.backend_hint since VCL 4.0"),
        (Name, "req.hash", "in vcl_hash it is hash_data(TEXT);"),
        (Name, "req.body", "content goes through unread"),
        (Name, "req.service_id", "it is Fastly's own"),
        (Name, "req.is_ssl", "the edge speaks no TLS"),
        (Name, "req.protocol", "the edge speaks no TLS: it is http"),
        (Name, "req.url.path", "it is regsub(req.url, \"\\?.*\", \"\")"),
        (Name, "req.url.qs", "it is regsub(req.url, \"^[^?]*\\??\", \"\")"),
        (Name, "req.url.basename", "it is regsub(req.url, \"^[^?]*/([^/?]*).*\", \"\\1\")"),
        (Name, "req.url.dirname", "it is regsub(req.url, \"^([^?]*)/.*\", \"\\1\")"),
        (Name, "req.url.ext", "match it: req.url ~ \"\\.m4s(\\?|$)\""),
        (Name, "beresp.cacheable", "it is beresp.uncacheable, the other way round"),
        (Name, "beresp.saintmode", "a probe takes a sick backend out"),
        (Name, "beresp.response", "it is beresp.reason"),
        (Name, "beresp.stale_while_revalidate", "it is beresp.grace"),
        (
            Name,
            "beresp.stale_if_error",
            "it is a part of the header: set beresp.http.Cache-Control = beresp.http.Cache-Control + \", stale-if-error=60\";",
        ),
        (Name, "obj.response", "what goes out is resp.reason, also in vcl_synth"),
        (Name, "obj.cacheable", "it is obj.uncacheable, the other way round"),
        (Name, "obj.http.*", "what goes out is resp.http.NAME, also in vcl_synth"),
        (Name, "obj.status", "what goes out is resp.status, also in vcl_synth"),
        (Name, "obj.ttl", "it is beresp.ttl, in vcl_backend_response"),
        (Name, "resp.response", "it is resp.reason"),
        (Name, "server.datacenter", "server.identity names the edge"),
        (Name, "server.pop", "server.identity names the edge"),
        (Name, "server.region", "server.identity names the edge"),
    ]
};

const NO_TLS: &str = "the edge asks backends in clear text; for TLS, name a proxy beside it";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_is_hidden_by_one_before_it() {
        for (place, name, own) in IDIOMS {
            let one = name.replace(".*", ".one");
            assert_eq!(advice(*place, &one), Some(*own), "{place:?} {name}");
        }
        assert_eq!(advice(Place::Name, "digest"), advice(Place::Name, "digest.hmac_md5"));
        assert_eq!(advice(Place::Name, "digests.a"), None);
    }
}
