//! Controller sink: sends each batch in one POST request, encoded as protobuf, over a persistent
//! connection.
//!
//! The controller does not keep the records themselves. It aggregates them into windows, ignores
//! records outside the open windows, and drops repeats by record number.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use serde_json::Value;
use thalweg_record::{Batch, Source};
use thalweg_surface::client::Blocking;
use thalweg_surface::{ClientTls, Limits, PROTOBUF, TokenFile};
use url::Url;
use url::form_urlencoded::byte_serialize;

use crate::error::{Error, SinkError};
use crate::sink::Sink;

/// Maximum idle time of a connection before it is closed.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// The controller sink.
#[derive(Debug)]
pub struct ControllerSink {
    /// The controller's URL, `http[s]://HOST:PORT`.
    url: String,
    token: Option<TokenFile>,
    client: Blocking,
    /// Reason for the newest dropped records.
    dropped: Option<String>,
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

impl ControllerSink {
    /// Creates a sink for the controller at `http[s]://HOST:PORT`, without connecting yet. `token`
    /// is presented with each request; `tls` is for `https`.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid, or the system cannot start a runtime.
    pub fn at(url: &str, token: Option<TokenFile>, tls: Option<ClientTls>) -> Result<Self, Error> {
        let refused =
            || Error::refused(format!("controller URL must have the form http[s]://HOST:PORT, got {url:?}"));
        let parsed = Url::parse(url).map_err(|_| refused())?;
        let host = parsed.host_str().ok_or_else(refused)?;
        let is_known = matches!(parsed.scheme(), "http" | "https");
        if !is_known || parsed.path() != "/" || parsed.query().is_some() || !parsed.username().is_empty() {
            return Err(refused());
        }
        let limits = Limits { idle: Some(IDLE_MAX), ..Limits::default() };
        let client =
            Blocking::with_tls(limits, tls).map_err(|cause| Error::of("cannot start a runtime", cause))?;
        let port = parsed.port_or_known_default().unwrap_or(80);
        let url = format!("{}://{host}:{port}", parsed.scheme());
        Ok(Self { url, token, client, dropped: None })
    }

    /// Sends a request and returns the response, a JSON object.
    fn request(&self, method: Method, target: &str, content: Bytes) -> Result<Value, SinkError> {
        self.exchange(method, target, content).map_err(|(is_passing, cause)| SinkError {
            what: format!("request to controller at {} failed", self.url),
            is_passing,
            cause,
        })
    }

    /// Sends one request. An error includes whether the failure is temporary.
    fn exchange(&self, method: Method, target: &str, content: Bytes) -> Result<Value, (bool, Cause)> {
        let mut request = Request::builder().method(method).uri(format!("{}{target}", self.url));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.credentials().map_err(|why| (true, why.into()))?);
        }
        let request = request.header(CONTENT_TYPE, PROTOBUF).body(content);
        let request = request.map_err(|error| (false, error.into()))?;
        let answer = self.client.send(request).map_err(|error| (true, error.into()))?;
        let (status, content) = (answer.status(), answer.into_body());
        let answer: Value = serde_json::from_slice(&content).unwrap_or_default();
        if status != StatusCode::OK {
            let why = answer["error"].as_str().unwrap_or("no reason given").to_owned();
            // The controller limits the rate of records (429), and a token (401) may be replaced
            // while the agent runs.
            let is_passing = status.is_server_error()
                || matches!(
                    status,
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT
                );
            return Err((is_passing, format!("{status}: {why}").into()));
        }
        Ok(answer)
    }

    /// Logs records that the controller dropped, unless the previous batch had the same cause.
    fn log_dropped(&mut self, answer: &Value) {
        let reason = answer["reason"].as_str().map(str::to_owned);
        let cause = |text: &str| text.trim_start_matches(|char: char| char.is_ascii_digit()).to_owned();
        let is_new = reason.as_deref().map(cause) != self.dropped.as_deref().map(cause);
        if let (Some(reason), true) = (&reason, is_new) {
            let (controller, records) = (&self.url, answer["dropped"].as_u64());
            tracing::warn!(controller, records, reason, "controller dropped records");
        }
        self.dropped = reason;
    }
}

impl Sink for ControllerSink {
    fn name(&self) -> &'static str {
        "controller"
    }

    fn position(&mut self, source: &Source) -> Result<Option<u64>, SinkError> {
        let host: String = byte_serialize(source.host.as_bytes()).collect();
        let pop: String = byte_serialize(source.pop.as_bytes()).collect();
        let target = format!("/position?pop={pop}&host={host}&epoch={}", source.epoch);
        Ok(self.request(Method::GET, &target, Bytes::new())?["position"].as_u64())
    }

    fn store(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let mut content = Vec::new();
        batch.encode(&mut content);
        let answer = self.request(Method::POST, "/records", content.into())?;
        self.log_dropped(&answer);
        let position = answer["position"].as_u64();
        let last = batch.entries.last().map_or(0, |last| last.number);
        if position.is_some_and(|position| position > last) {
            return Ok(());
        }
        // The server is not a controller, or it did not receive all records.
        Err(SinkError {
            what: format!("controller at {} did not accept the records", self.url),
            is_passing: false,
            cause: format!("it reports position {position:?} after record {last}").into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_urls_are_accepted() {
        for (good, url) in [
            ("http://controller.example:8083", "http://controller.example:8083"),
            ("http://[::1]:8083/", "http://[::1]:8083"),
            ("http://controller", "http://controller:80"),
            ("https://controller", "https://controller:443"),
        ] {
            assert_eq!(ControllerSink::at(good, None, None).unwrap().url, url);
        }
        for bad in ["controller:8083", "ftp://x", "http://x/path", "https://x/?a", "http://a:b@x"] {
            assert!(ControllerSink::at(bad, None, None).is_err(), "{bad}");
        }
    }
}
