//! Advice for names from Fastly VCL and from Varnish 2 and 3 that do not exist here.
//!
//! The lexer, the parser and the checker consult this table before they suggest a similar name. The
//! table affects only help messages, not which policies are accepted. Sources: Fastly's VCL
//! reference, vcl(7) of Varnish 3.0, and Varnish's "Upgrading to Varnish 4".

use crate::fault::suggest;
use crate::words::words;

words! {
    /// The syntactic position of a name.
    pub(crate) enum Place {
        /// Right after the `#` of a comment.
        Comment = "comment",
        /// At the start of a declaration.
        Declaration = "declaration",
        /// After `sub`.
        Subroutine = "subroutine",
        /// At the start of a statement.
        Statement = "statement",
        /// Inside the parentheses of `return`.
        Action = "action",
        /// After the dot of a backend or probe attribute.
        Attribute = "attribute",
        /// A variable, a function, or a module.
        Name = "name",
    }
}

/// Returns advice on what to use instead of `name`. The pattern `a.*` also matches `a`.
pub(crate) fn advice(place: Place, name: &str) -> Option<&'static str> {
    let fits = |known: &str| match known.strip_suffix(".*") {
        Some(scope) => name.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
        None => known == name,
    };
    rows().find(|row| row.0 == place && fits(row.1)).map(|row| row.2)
}

/// Returns the parsed rows of [`IDIOMS`].
fn rows() -> impl Iterator<Item = (Place, &'static str, &'static str)> {
    IDIOMS.lines().filter_map(|line| {
        let (place, line) = line.split_once(' ')?;
        let (name, advice) = line.trim_start().split_once(' ')?;
        Some((Place::named(place)?, name, advice.trim_start()))
    })
}

/// Returns the [`advice`] for `name`, or otherwise suggests a similar name from `known`.
pub(crate) fn help<'a>(
    place: Place,
    name: &str,
    known: impl IntoIterator<Item = &'a str, IntoIter: Clone>,
) -> String {
    advice(place, name).map_or_else(|| suggest(name, known.into_iter()), str::to_owned)
}

/// Each line has a syntactic position, a name and the advice. The first matching row applies.
static IDIOMS: &str = r#"
comment     FASTLY                        Fastly inserts code there; here the built-in policy follows a subroutine that does not return
declaration table                         there are no tables; use if and elseif
declaration director                      create one in vcl_init with new NAME = directors.random(); and fill it with NAME.add_backend(…)
declaration penaltybox                    there is no rate limiting
declaration ratecounter                   there is no rate limiting
declaration pragma                        remove it
subroutine  vcl_fetch                     use vcl_backend_response, with bereq in place of req
subroutine  vcl_error                     use vcl_synth for the policy's own responses, vcl_backend_error for failed fetches
subroutine  vcl_log                       thalweg log has a record of each response; std.log(…) in vcl_deliver adds lines to it
subroutine  vcl_prehash                   use vcl_recv
statement   remove                        since VCL 4.0, use unset
statement   error                         since VCL 4.0, use return (synth(STATUS, REASON));
statement   esi                           there is no ESI
statement   goto                          there is no goto; split the subroutine and use call
statement   declare                       there are no local variables; use a header
statement   purge                         since VCL 4.0, use return (purge); in vcl_recv
statement   restart                       use return (restart);
statement   rollback                      use std.rollback(req);
statement   log                           use std.log(TEXT);
statement   add                           use header.append(resp.http.NAME, TEXT); of the module header
statement   switch                        there is no switch; use if and elseif
statement   synthetic                     since VCL 4.0, write parentheses: synthetic({"…"});
statement   synthetic.base64              use synthetic(blob.transcode(decoding = BASE64, encoded = TEXT));
statement   pragma                        remove it
action      hit_for_pass                  use pass(120s) in vcl_backend_response
action      deliver_stale                 stale responses are delivered automatically during their grace
action      upgrade                       use pipe, and in vcl_pipe set bereq.http.Connection = "upgrade";
action      lookup                        since VCL 4.0, use hash in vcl_recv
attribute   ssl                           the edge connects to backends without TLS; use a TLS proxy next to the edge as the backend
attribute   ssl_cert_hostname             the edge connects to backends without TLS; use a TLS proxy next to the edge as the backend
attribute   ssl_check_cert                the edge connects to backends without TLS; use a TLS proxy next to the edge as the backend
attribute   ssl_sni_hostname              the edge connects to backends without TLS; use a TLS proxy next to the edge as the backend
attribute   ssl_ca_cert                   the edge connects to backends without TLS; use a TLS proxy next to the edge as the backend
attribute   min_tls_version               the edge connects to backends without TLS; use a TLS proxy next to the edge as the backend
attribute   max_tls_version               the edge connects to backends without TLS; use a TLS proxy next to the edge as the backend
attribute   share_key                     remove it: identical backends share health and connections
attribute   dynamic                       remove it: names are resolved repeatedly
attribute   always_use_host_header        set bereq.http.Host = NAME; in vcl_backend_fetch
attribute   fetch_timeout                 use .first_byte_timeout and .between_bytes_timeout
attribute   bypass_local_route_table      remove it
attribute   dummy                         remove .probe: a backend without one is healthy
attribute   quorum                        use .threshold
name        if                            there is no if(…) expression; assign within if (…) { } else { }
name        subfield                      use cookie.get(NAME) of the module cookie for cookies, regsub(TEXT, REGEX, "\1") for others
name        urlencode                     use blob.transcode(encoding = URL, encoded = TEXT)
name        urldecode                     use blob.transcode(decoding = URL, encoded = TEXT)
name        substr                        use regsub(TEXT, REGEX, "\1")
name        randomint                     use std.real2integer(std.random(FROM, TO), 0)
name        randombool                    use std.random(0.0, 1.0) < 0.5
name        randomstr                     random strings are not supported; req.xid identifies the request
name        uuid.*                        UUIDs are not supported; req.xid identifies the request
name        boltsort.sort                 use std.querysort(TEXT)
name        strftime                      use std.strftime(TIME, FORMAT)
name        setcookie.*                   use regsub(resp.http.Set-Cookie, REGEX, "\1"); the module cookie reads only request cookies
name        table.*                       there are no tables; use if and elseif
name        digest.base64                 use blob.transcode(encoding = BASE64, encoded = TEXT)
name        digest.base64_decode          use blob.transcode(decoding = BASE64, encoded = TEXT)
name        digest.base64url              use blob.transcode(encoding = BASE64URL, encoded = TEXT)
name        digest.base64url_decode       use blob.transcode(decoding = BASE64URL, encoded = TEXT)
name        digest.*                      there are no digests or signatures; verify them in front of the edge
name        crypto.*                      there are no ciphers
name        time.elapsed.*                use now - req.time; the record has ttfb_us and written_us
name        time.start.*                  use req.time
name        time.*                        use operators: now + 5s, now - req.time; std.time parses a time
name        std.atoi                      use std.integer(TEXT, FALLBACK)
name        std.strtol                    use std.integer(TEXT, FALLBACK)
name        std.atof                      use std.real(TEXT, FALLBACK)
name        std.strtof                    use std.real(TEXT, FALLBACK)
name        std.itoa                      not needed: an INT converts to text
name        std.prefixof                  use TEXT ~ "^…"
name        std.suffixof                  use TEXT ~ "…$"
name        std.str2ip                    use std.ip(TEXT, FALLBACK)
name        ratelimit.*                   there is no rate limiting
name        tls.*                         the edge does not speak TLS
name        fastly.*                      specific to Fastly
name        fastly_info.*                 use the record: cache, and tcp for the kernel's statistics
name        waf.*                         specific to Fastly
name        workspace.*                   specific to Fastly
name        geoip.*                       use client.geo.*
name        var.*                         there are no local variables; use a header
name        re.group.*                    use regsub(TEXT, REGEX, "\1") for the text of a group
name        req.request                   since VCL 4.0, use req.method
name        bereq.request                 since VCL 4.0, use bereq.method
name        req.backend.healthy           use std.healthy(req.backend_hint)
name        req.backend                   since VCL 4.0, use req.backend_hint
name        req.hash                      in vcl_hash, use hash_data(TEXT);
name        req.body                      request content is forwarded unread
name        req.service_id                specific to Fastly
name        req.is_ssl                    the edge does not speak TLS
name        req.protocol                  the edge does not speak TLS: it is always http
name        req.url.path                  use regsub(req.url, "\?.*", "")
name        req.url.qs                    use regsub(req.url, "^[^?]*\??", "")
name        req.url.basename              use regsub(req.url, "^[^?]*/([^/?]*).*", "\1")
name        req.url.dirname               use regsub(req.url, "^([^?]*)/.*", "\1")
name        req.url.ext                   match it with req.url ~ "\.m4s(\?|$)"
name        beresp.cacheable              use beresp.uncacheable, which has the opposite meaning
name        beresp.saintmode              use a probe to exclude an unhealthy backend
name        beresp.response               use beresp.reason
name        beresp.stale_while_revalidate use beresp.grace
name        beresp.stale_if_error         set it in the header: set beresp.http.Cache-Control = beresp.http.Cache-Control + ", stale-if-error=60";
name        obj.response                  use resp.reason, also in vcl_synth
name        obj.cacheable                 use obj.uncacheable, which has the opposite meaning
name        obj.http.*                    use resp.http.NAME, also in vcl_synth
name        obj.status                    use resp.status, also in vcl_synth
name        obj.ttl                       use beresp.ttl in vcl_backend_response
name        resp.response                 use resp.reason
name        server.datacenter             use server.identity, which names the edge
name        server.pop                    use server.identity, which names the edge
name        server.region                 use server.identity, which names the edge
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_is_shadowed_by_an_earlier_one() {
        assert_eq!(rows().count() + 1, IDIOMS.lines().count(), "every line must be a row");
        for (place, name, own) in rows() {
            let one = name.replace(".*", ".one");
            assert_eq!(advice(place, &one), Some(own), "{place:?} {name}");
        }
        assert_eq!(advice(Place::Name, "digest"), advice(Place::Name, "digest.hmac_md5"));
        assert_eq!(advice(Place::Name, "digests.a"), None);
    }
}
