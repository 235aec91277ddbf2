//! Console pages from `console/dist`, embedded at build time.
//!
//! Names in `assets/` contain a content hash, so these files may be cached forever; all others are
//! validated on each use.

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use rust_embed::{EmbeddedFile, RustEmbed};
use thalweg_http::validators::{EntityTag, entity_tags};

#[derive(RustEmbed)]
#[folder = "../../console/dist"]
#[allow_missing = true]
struct Dist;

const INDEX: &str = "index.html";

/// Page shown by a program built without the console.
const MISSING_PAGE: &str = "<!doctype html><meta charset=utf-8><title>Thalweg</title>\
    <h1>Thalweg</h1><p>This program was built without the console's pages. In the source tree, \
    <code>make build</code> builds them and the program.</p>";

/// Logs a warning if the program was built without the pages.
pub(super) fn warn_if_missing() {
    if Dist::get(INDEX).is_none() {
        tracing::warn!(build = "make build", "console pages missing from this build");
    }
}

/// Responds to a page request.
pub(super) async fn page(method: Method, uri: Uri, request: HeaderMap) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        return answer(StatusCode::METHOD_NOT_ALLOWED, &[(ALLOW, "GET, HEAD")], Body::empty());
    }
    let path = uri.path().trim_start_matches('/');
    let path = if path.is_empty() { INDEX } else { path };
    match Dist::get(path) {
        Some(file) => found(path, file, &request),
        None if path == INDEX => {
            let html = [(CONTENT_TYPE, "text/html; charset=utf-8")];
            answer(StatusCode::SERVICE_UNAVAILABLE, &html, Body::from(MISSING_PAGE))
        }
        None => {
            let text = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
            answer(StatusCode::NOT_FOUND, &text, Body::from("no such page\n"))
        }
    }
}

fn found(path: &str, file: EmbeddedFile, request: &HeaderMap) -> Response<Body> {
    let etag = etag(&file);
    let keep = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let validators = [(ETAG, etag.as_str()), (CACHE_CONTROL, keep)];
    if names(request, &etag) {
        return answer(StatusCode::NOT_MODIFIED, &validators, Body::empty());
    }
    let mut fields = validators.to_vec();
    fields.push((CONTENT_TYPE, content_type(path)));
    fields.push((X_CONTENT_TYPE_OPTIONS, "nosniff"));
    answer(StatusCode::OK, &fields, Body::from(file.data))
}

fn answer(status: StatusCode, fields: &[(HeaderName, &str)], body: Body) -> Response<Body> {
    let response =
        fields.iter().fold(Response::builder().status(status), |r, (name, value)| r.header(name, *value));
    response.body(body).expect("all field values are our own ASCII strings")
}

/// Returns a strong validator: the first half of the content's SHA-256.
fn etag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

/// Returns whether `If-None-Match` names this validator, by weak comparison (RFC 9110 §13.1.2).
fn names(request: &HeaderMap, etag: &str) -> bool {
    let ours = EntityTag::parse(etag.as_bytes()).expect("a quoted hexadecimal string is an entity tag");
    let mut lines = request.get_all(IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
    lines.any(|line| line == b"*" || entity_tags(line).any(|tag| tag.weak_eq(&ours)))
}

/// Returns the media type by extension; the build produces no other extensions.
fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/vnd.microsoft.icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
