//! Runs sequences against a proxy. Returns the outcomes as lines that can be compared.
//!
//! An outcome consists of the client's response (`status "content" field=value`), a bar, and the
//! backend requests that the step caused (`METHOD condition=value`, or `-` for no request).

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use thalweg_http::date;

use crate::Outcomes;
use crate::backend::BackendRequest;
use crate::client::{Response, receive, send};
use crate::proxies::Server;
use crate::sequence::{Request, Sequence, Step};

/// Time after which a lifetime of one second, followed by one second of stale use, has expired even
/// on clocks with a resolution of one second.
const LATER: Duration = Duration::from_millis(3100);
/// Time limit for background work caused by a response.
const BACKGROUND_MAX: Duration = Duration::from_secs(2);
/// Time to wait for parallel requests to reach the backend; collapsed requests never do.
const TOGETHER_MAX: Duration = Duration::from_millis(500);
/// Maximum length of content shown verbatim. For longer content, only the length is shown.
const CONTENT_SHOWN_MAX: usize = 1000;
/// Conditional and range fields of requests.
const CONDITIONS: [&str; 6] =
    ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"];

/// Runs each sequence until it must wait, then waits once for all sequences, and continues.
pub(crate) fn run(server: &Server, sequences: &[Sequence]) -> Outcomes {
    let mut outcomes = vec![Vec::new(); sequences.len()];
    let mut rests: Vec<_> = sequences.iter().map(|sequence| sequence.steps.iter()).collect();
    loop {
        let mut waits = false;
        for ((sequence, rest), outcomes) in sequences.iter().zip(&mut rests).zip(&mut outcomes) {
            for step in rest {
                if matches!(step, Step::Later) {
                    waits = true;
                    break;
                }
                outcomes.push(run_step(server, sequence, step));
            }
        }
        if !waits {
            return outcomes;
        }
        thread::sleep(LATER);
    }
}

/// Runs one step.
fn run_step(server: &Server, sequence: &Sequence, step: &Step) -> String {
    let name = sequence.name;
    let before = server.backend.requests(name, 0).len();
    let send_and_receive = |request: &Request| {
        let response = send(server.address, name, request).and_then(|stream| receive(stream, request));
        response.unwrap_or_else(|error| panic!("{name} at {}: {error}", server.address))
    };
    let mut outcome = match step {
        Step::Send(request) => describe_response(&send_and_receive(request), request, sequence),
        Step::Background(request, count) => {
            let outcome = describe_response(&send_and_receive(request), request, sequence);
            server.backend.wait_for(name, before + count, BACKGROUND_MAX);
            outcome
        }
        Step::Until(request, content) => {
            let begun = Instant::now();
            let mut response = send_and_receive(request);
            while response.content != *content && begun.elapsed() < BACKGROUND_MAX {
                response = send_and_receive(request);
            }
            describe_response(&response, request, sequence)
        }
        Step::Begin(request) => {
            let stream = begin(server, name, request);
            server.backend.hold(name, false);
            describe_response(&receive(stream, request).unwrap(), request, sequence)
        }
        Step::Leave(request) => {
            // Closing with unread bytes resets the connection.
            drop(begin(server, name, request));
            server.backend.hold(name, false);
            assert!(
                server.backend.wait_answered(name, before + 1, BACKGROUND_MAX),
                "{name}: the backend is waiting"
            );
            "left".into()
        }
        Step::Together(request, count) => together(server, sequence, request, *count, before),
        Step::Later => unreachable!("waiting is handled by the caller"),
    };
    let requests: Vec<_> = server
        .backend
        .requests(name, before)
        .iter()
        .map(|request| describe_request(request, sequence))
        .collect();
    outcome += " | ";
    outcome += &if requests.is_empty() { "-".to_owned() } else { requests.join(", ") };
    outcome
}

/// Sends parallel requests. The first one reaches the backend, which responds once all others have
/// arrived or the time limit has passed.
fn together(server: &Server, sequence: &Sequence, request: &Request, count: usize, before: usize) -> String {
    let name = sequence.name;
    let send = || send(server.address, name, request).unwrap();
    server.backend.hold(name, true);
    let mut streams = vec![send()];
    let reached = server.backend.wait_for(name, before + 1, BACKGROUND_MAX);
    assert!(reached, "{name}: the backend received no request");
    streams.extend((1..count).map(|_| send()));
    server.backend.wait_for(name, before + count, TOGETHER_MAX);
    server.backend.hold(name, false);
    let mut outcome: Vec<_> = streams
        .into_iter()
        .map(|stream| describe_response(&receive(stream, request).unwrap(), request, sequence))
        .collect();
    outcome.sort_unstable();
    outcome.join(" & ")
}

/// Sends a request and waits for the start of the response. If the backend is contacted, it holds
/// the rest of the response.
fn begin(server: &Server, name: &str, request: &Request) -> TcpStream {
    server.backend.hold(name, true);
    let stream = send(server.address, name, request).unwrap();
    assert!(stream.peek(&mut [0]).unwrap() > 0, "{name}: the connection was closed");
    stream
}

fn describe_response(response: &Response, request: &Request, sequence: &Sequence) -> String {
    let mut outcome = response.status.to_string();
    let content = without_boundary(&response.content, response);
    // Omit error pages generated by a proxy, and truncated content, whose length depends on timing.
    let is_start =
        !response.whole && sequence.answers.iter().any(|answer| answer.content.starts_with(&*content));
    let own = response.status >= 400 && !sequence.answers.iter().any(|answer| answer.content == content);
    if request.method != "HEAD" && !matches!(response.status, 204 | 304) && !own && !is_start {
        outcome += &match content.len() {
            0..=CONTENT_SHOWN_MAX => format!(" {content:?}"),
            length => format!(" {length} bytes"),
        };
    }
    for name in sequence.shown.iter().filter(|name| !own || **name == "content-range") {
        let values: Vec<_> = response
            .fields
            .iter()
            .filter(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
            .collect();
        if !values.is_empty() {
            outcome += &format!(" {name}={}", normalised_value(name, &values.join(", "), response));
        }
    }
    if !response.whole {
        outcome += " (cut)";
    }
    outcome
}

/// Replaces the parts of a field value that depend on the time or on the proxy's name.
fn normalised_value(name: &str, value: &str, response: &Response) -> String {
    match name {
        "age" => value.parse().map_or(value.to_owned(), |age: u64| format!("{}+", age / 10 * 10)),
        "date" if is_now(value) => "now".into(),
        "server" => value.split('/').next().unwrap_or(value).to_owned(),
        "via" => "*".into(),
        "content-type" => without_boundary(value, response),
        _ => value.to_owned(),
    }
}

/// Returns whether `value` is a date within this test's run time.
fn is_now(value: &str) -> bool {
    let now_s = UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs());
    date::parse(value.as_bytes()).is_some_and(|date_s| date_s.abs_diff(now_s) < 60)
}

fn without_boundary(text: &str, response: &Response) -> String {
    match response.field("content-type").and_then(|value| value.split_once("boundary=")) {
        Some((_, boundary)) => text.replace(boundary.trim_matches('"'), "B"),
        None => text.to_owned(),
    }
}

fn describe_request(request: &BackendRequest, sequence: &Sequence) -> String {
    let mut outcome = request.method.clone();
    for name in CONDITIONS.iter().chain(&sequence.passed) {
        if let Some(value) = request.field(name) {
            let value = if *name == "via" { "*" } else { value };
            outcome += &format!(" {name}={value}");
        }
    }
    outcome
}
