//! Access control: identifies the sender of each request, and decides whether the sender may send
//! it.
//!
//! With an identities file, every request needs a token or the client certificate of an identity,
//! except health checks. Without such a file, the controller listens on loopback only, anyone on
//! the machine may send any request, and limits apply to the names in the requests.
//!
//! **Invariant:** a token never appears in logs, errors or metrics.
//! **Invariant:** a faulty identities file changes nothing: the last good one stays in force.

mod identities;
mod quota;
mod token;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::extract::{Request, State as With};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use thalweg_geo::Stamp;
use thalweg_surface::{PeerNames, Refusal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::metrics::Metrics;
pub(crate) use identities::Role;
use identities::{FILE_BYTES_MAX, Identities, Identity};
pub use quota::Limits;
pub(crate) use quota::{Busy, Key, Quotas};
pub use token::create_token;

/// Interval at which the identities file is checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum length of a token in bytes.
const TOKEN_BYTES_MAX: usize = 1 << 10;
/// Minimum time between two log lines about refused tokens and certificates.
const REFUSED_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Challenge in a 401 (RFC 6750 §3).
const CHALLENGE: &str = "Bearer realm=\"thalweg controller\"";

/// Access rules of a controller.
#[derive(Debug)]
pub(crate) struct Access {
    file: Option<IdentitiesFile>,
    pub(crate) quotas: Quotas,
    metrics: Metrics,
    /// Time of the last log line about a refused token or certificate.
    refused_log: Mutex<Option<Instant>>,
}

/// An identities file and its current content.
#[derive(Debug)]
struct IdentitiesFile {
    path: PathBuf,
    /// Whether clients present certificates.
    has_client_ca: bool,
    identities: RwLock<Arc<Identities>>,
    /// Version of the file last read, whether it was valid or not.
    stamp: Mutex<Option<Stamp>>,
}

/// Sender of a request.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// Anyone on this machine, because there is no identities file.
    Anyone,
    /// The owner of a token or certificate, with a role that allows the request.
    Known(Arc<Identity>),
}

impl Access {
    /// Reads the identities file, if there is one. `has_client_ca` means that clients present
    /// certificates.
    ///
    /// # Errors
    ///
    /// Returns an error that locates the first fault of the file.
    pub(crate) fn open(
        path: Option<&Path>,
        has_client_ca: bool,
        limits: &Limits,
        metrics: &Metrics,
    ) -> Result<Self, String> {
        let file = path.map(|path| {
            let (identities, stamp) = read(path, has_client_ca)?;
            let (identities, stamp) = (RwLock::new(Arc::new(identities)), Mutex::new(Some(stamp)));
            Ok::<_, String>(IdentitiesFile { path: path.to_owned(), has_client_ca, identities, stamp })
        });
        let (file, quotas) = (file.transpose()?, Quotas::new(limits));
        Ok(Self { file, quotas, metrics: metrics.clone(), refused_log: Mutex::default() })
    }

    /// Returns whether records of `host` that were read from Kafka are accepted. If identities are
    /// configured, an agent of the PoP must list the host.
    pub(crate) fn has_reporter(&self, pop: &str, host: &str) -> bool {
        self.file.as_ref().is_none_or(|file| file.current().has_reporter(pop, host))
    }

    /// Rereads the identities file whenever it changes. Never returns.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let access = self.clone();
            let _ =
                tokio::task::spawn_blocking(move || access.file.as_ref().map(IdentitiesFile::check)).await;
        }
    }

    /// Returns the sender of a request that requires `role`, and counts the request against the
    /// sender's limit. `names` are those in the client's certificate.
    ///
    /// # Errors
    ///
    /// Returns a refusal if neither the token nor the certificate belongs to an identity, if the
    /// identity does not have the role, or if the sender has sent too many requests.
    fn caller(&self, role: Role, fields: &HeaderMap, names: &PeerNames) -> Result<Caller, Refusal> {
        let Some(file) = &self.file else { return Ok(Caller::Anyone) };
        let identities = file.current();
        // A token identifies the sender, whatever the certificate.
        let identity = if fields.contains_key(AUTHORIZATION) {
            bearer(fields).and_then(|token| identities.find(token))
        } else {
            identities.of_certificate(role, names)
        };
        let Some(identity) = identity.cloned() else {
            self.metrics.unauthorized.inc();
            self.log_refused();
            let why = "missing or wrong token: send Authorization: Bearer TOKEN, or use a certificate of an identity";
            let challenge = HeaderValue::from_static(CHALLENGE);
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, why).with_field(WWW_AUTHENTICATE, challenge));
        };
        let Identity { role: own, name, .. } = &*identity;
        if *own != role {
            return Err(self.forbidden(format!("the identity of {own} {name:?} is not for an {role}")));
        }
        if !identity.has_certificate(names) {
            let why = format!("the token of {own} {name:?} is valid only with its client certificate");
            return Err(self.forbidden(why));
        }
        let caller = Caller::Known(identity);
        self.admit(&caller.key(role, "", ""))?;
        Ok(caller)
    }

    /// Counts a request against its sender's limit.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the sender has sent too many requests.
    pub(crate) fn admit(&self, key: &Key) -> Result<(), Refusal> {
        self.quotas.take_request(key).map_err(|busy| self.busy(&busy))
    }

    /// Creates the refusal of a request that exceeds a limit, and counts the refusal.
    pub(crate) fn busy(&self, busy: &Busy) -> Refusal {
        self.metrics.throttled.inc();
        Refusal::busy(&busy.why, busy.retry_after)
    }

    /// Creates the refusal of a request that the sender's identity does not allow, and counts the
    /// refusal.
    pub(crate) fn forbidden(&self, why: String) -> Refusal {
        self.metrics.forbidden.inc();
        Refusal::new(StatusCode::FORBIDDEN, why)
    }

    fn log_refused(&self) {
        let mut last = self.refused_log.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= REFUSED_LOG_INTERVAL) {
            *last = Some(Instant::now());
            tracing::warn!(
                refused = self.metrics.unauthorized.get(),
                "request with a missing or wrong token or certificate"
            );
        }
    }
}

impl Caller {
    /// Returns the sender's key for limits: the identity, or the names in the request.
    pub(crate) fn key(&self, role: Role, pop: &str, name: &str) -> Key {
        match self {
            Self::Anyone => Key { role, pop: pop.to_owned(), name: name.to_owned() },
            Self::Known(it) => Key { role: it.role, pop: it.pop.clone(), name: it.name.clone() },
        }
    }

    /// Returns whether the sender may poll as this edge of this PoP.
    pub(crate) fn is_edge(&self, pop: &str, edge: Option<&str>) -> bool {
        match self {
            Self::Anyone => true,
            Self::Known(it) => it.role == Role::Edge && it.pop == pop && edge == Some(it.name.as_str()),
        }
    }

    /// Returns whether the sender may send records of this host at this PoP.
    pub(crate) fn reports(&self, pop: &str, host: &str) -> bool {
        match self {
            Self::Anyone => true,
            Self::Known(it) => it.reports(pop, host),
        }
    }
}

impl IdentitiesFile {
    fn current(&self) -> Arc<Identities> {
        self.identities.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file if it has changed.
    fn check(&self) {
        let mut known = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.path);
        if *known == stamp {
            return;
        }
        *known = stamp;
        match read(&self.path, self.has_client_ca) {
            Ok((identities, stamp)) => {
                *known = Some(stamp);
                tracing::info!(path = %self.path.display(), identities = identities.len(), "identities loaded");
                *self.identities.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(identities);
            }
            Err(error) => {
                tracing::error!(error, "identities file unusable, the last good one stays in force");
            }
        }
    }
}

/// Returns whether a listener on `address` accepts connections from this machine only.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn read(path: &Path, has_client_ca: bool) -> Result<(Identities, Stamp), String> {
    let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > FILE_BYTES_MAX as u64 {
        return Err(format!("{} is longer than {FILE_BYTES_MAX} bytes", path.display()));
    }
    let (bytes, stamp) = thalweg_geo::read(path).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{}: not UTF-8", path.display()))?;
    let identities = Identities::parse(&text).map_err(|fault| format!("{}:{fault}", path.display()))?;
    if identities.use_certificates() && !has_client_ca {
        return Err(format!("{}: certificate_name needs tls_client_ca", path.display()));
    }
    Ok((identities, stamp))
}

/// Returns the token of `Authorization: Bearer TOKEN`. A request with several such fields has none.
fn bearer(fields: &HeaderMap) -> Option<&[u8]> {
    let mut values = fields.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    let is_token = scheme.eq_ignore_ascii_case(b"Bearer ") && token.len() <= TOKEN_BYTES_MAX;
    (is_token && !token.is_empty()).then_some(token)
}

/// Passes a request on with its [`Caller`], or refuses the request.
pub(crate) async fn require(
    With((access, role)): With<(Arc<Access>, Role)>,
    mut request: Request,
    next: Next,
) -> Response {
    let names = request.extensions().get().cloned().unwrap_or_default();
    match access.caller(role, request.headers(), &names) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_from_a_single_bearer_field() {
        let token = |values: &[&str]| {
            let mut map = HeaderMap::new();
            for value in values {
                map.append(AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&map).map(|token| String::from_utf8(token.to_vec()).unwrap())
        };
        assert_eq!(token(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(token(&["bearer  abc "]).as_deref(), Some("abc"));
        let long = format!("Bearer {}", "a".repeat(TOKEN_BYTES_MAX + 1));
        for none in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Basic abc"],
            &["abc"],
            &[&long],
            &["Bearer a", "Bearer a"],
        ] {
            assert_eq!(token(none), None, "{none:?}");
        }
    }
}
