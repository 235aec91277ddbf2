//! Value types of origin and live source settings.

use std::path::Path;

use hyper::Uri;
use thalweg_cli::secret::reveal;
use thalweg_origin::IngestToken;

use super::value::{Value, is_not};

/// A publishing point: `http://HOST[:PORT]/ingest/CHANNEL`.
impl Value for Uri {
    const FORM: &'static str = "a publishing point such as \"http://127.0.0.1:8084/ingest/CHANNEL\"";
    const PLACEHOLDER: &'static str = "URL";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        let uri: Self = text.parse().map_err(|_| is_not::<Self>(text))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
            return Err(is_not::<Self>(text));
        }
        if uri.path().trim_end_matches('/').is_empty() {
            return Err(format!("{text:?} is not a publishing point: write {}", Self::FORM));
        }
        Ok(uri)
    }
}

/// An ingest token, given directly or as `@FILE`. It never appears in messages.
impl Value for IngestToken {
    const FORM: &'static str = "a token of at least 16 letters, digits and -._~+/=, or @FILE";
    const PLACEHOLDER: &'static str = "TOKEN|@FILE";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        Self::new(&reveal(text, base)?).ok_or_else(|| format!("expected {}", Self::FORM))
    }
}
