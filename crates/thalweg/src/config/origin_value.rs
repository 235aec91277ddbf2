//! Value types of origin and live source settings.

use std::path::Path;

use hyper::Uri;
use thalweg_cli::secret::reveal;
use thalweg_origin::{IngestToken, MediaLocation};

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

/// A library of presentations. In a file, a relative directory is resolved against the file's
/// directory.
impl Value for MediaLocation {
    const FORM: &'static str = Self::FORM;
    const PLACEHOLDER: &'static str = "DIR|URL";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        Self::parse(text, base)
    }
}

/// URL of an S3 service, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointUrl(pub(crate) Uri);

impl Value for EndpointUrl {
    const FORM: &'static str = "a server such as \"https://s3.example.com\"";
    const PLACEHOLDER: &'static str = "URL";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        let uri: Option<Uri> = text.parse().ok();
        let is_server = |uri: &Uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && uri.path() == "/"
                && uri.query().is_none()
        };
        uri.filter(is_server).map(Self).ok_or_else(|| is_not::<Self>(text))
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
