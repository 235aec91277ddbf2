//! Runs sequences against a proxy: outcomes, as lines to compare.
//!
//! An outcome is what the client got, `status "content" field=value`, then a bar, then each request that the backend
//! got for it, `METHOD condition=value`; `-` if it was not asked.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use thalweg_http::date;

use crate::Outcomes;
use crate::backend::Asked;
use crate::client::{Response, receive, send};
use crate::proxies::Server;
use crate::sequence::{Request, Sequence, Step};

/// A lifetime of one second and one more of use after it are over, for clocks of whole seconds too.
const LATER: Duration = Duration::from_millis(3100);
/// What is done behind a response is done by then.
const BEHIND_MAX: Duration = Duration::from_secs(2);
/// Requests that are not made to wait for the first one have reached the backend by then.
const TOGETHER_MAX: Duration = Duration::from_millis(500);
/// Content that is told as it is; of more, its length.
const CONTENT_TOLD_MAX: usize = 1000;
/// Requests of a client about what it has, or a part.
const CONDITIONS: [&str; 6] =
    ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"];

/// Each sequence as far as it goes without waiting, then one wait for all, then on.
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
                outcomes.push(take(server, sequence, step));
            }
        }
        if !waits {
            return outcomes;
        }
        thread::sleep(LATER);
    }
}

/// Takes one step.
fn take(server: &Server, sequence: &Sequence, step: &Step) -> String {
    let name = sequence.name;
    let before = server.backend.asked(name, 0).len();
    let ask = |request: &Request| {
        let response = send(server.address, name, request).and_then(|stream| receive(stream, request));
        response.unwrap_or_else(|error| panic!("{name} at {}: {error}", server.address))
    };
    let mut told = match step {
        Step::Ask(request) => tell(&ask(request), request, sequence),
        Step::Behind(request) => {
            let told = tell(&ask(request), request, sequence);
            server.backend.wait_for(name, before + 1, BEHIND_MAX);
            told
        }
        Step::Until(request, content) => {
            let begun = Instant::now();
            let mut response = ask(request);
            while response.content != *content && begun.elapsed() < BEHIND_MAX {
                response = ask(request);
            }
            tell(&response, request, sequence)
        }
        Step::Begin(request) => {
            let stream = begin(server, name, request);
            server.backend.hold(name, false);
            tell(&receive(stream, request).unwrap(), request, sequence)
        }
        Step::Leave(request) => {
            // With unread bytes the connection is reset.
            drop(begin(server, name, request));
            server.backend.hold(name, false);
            assert!(server.backend.wait_answered(name, before + 1, BEHIND_MAX), "{name}: the backend waits");
            "left".into()
        }
        Step::Together(request, count) => together(server, sequence, request, *count, before),
        Step::Later => unreachable!("it is no step to take"),
    };
    let asked: Vec<_> =
        server.backend.asked(name, before).iter().map(|asked| tell_asked(asked, sequence)).collect();
    told += " | ";
    told += &if asked.is_empty() { "-".to_owned() } else { asked.join(", ") };
    told
}

/// The first request reaches the backend, which answers when all others have come too, or do not.
fn together(server: &Server, sequence: &Sequence, request: &Request, count: usize, before: usize) -> String {
    let name = sequence.name;
    let send = || send(server.address, name, request).unwrap();
    server.backend.hold(name, true);
    let mut streams = vec![send()];
    let asked = server.backend.wait_for(name, before + 1, BEHIND_MAX);
    assert!(asked, "{name}: the backend was not asked");
    streams.extend((1..count).map(|_| send()));
    server.backend.wait_for(name, before + count, TOGETHER_MAX);
    server.backend.hold(name, false);
    let mut told: Vec<_> = streams
        .into_iter()
        .map(|stream| tell(&receive(stream, request).unwrap(), request, sequence))
        .collect();
    told.sort_unstable();
    told.join(" & ")
}

/// A response that has begun, of which the backend keeps the rest back, if it was asked.
fn begin(server: &Server, name: &str, request: &Request) -> TcpStream {
    server.backend.hold(name, true);
    let stream = send(server.address, name, request).unwrap();
    assert!(stream.peek(&mut [0]).unwrap() > 0, "{name}: the connection ended");
    stream
}

fn tell(response: &Response, request: &Request, sequence: &Sequence) -> String {
    let mut told = response.status.to_string();
    let content = without_boundary(&response.content, response);
    // What a proxy says of its own has other words.
    // How much of what is cut has come is chance.
    let is_start =
        !response.whole && sequence.answers.iter().any(|answer| answer.content.starts_with(&*content));
    let own = response.status >= 400 && !sequence.answers.iter().any(|answer| answer.content == content);
    if request.method != "HEAD" && !matches!(response.status, 204 | 304) && !own && !is_start {
        told += &match content.len() {
            0..=CONTENT_TOLD_MAX => format!(" {content:?}"),
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
            told += &format!(" {name}={}", told_value(name, &values.join(", "), response));
        }
    }
    if !response.whole {
        told += " (cut)";
    }
    told
}

/// What does not depend on the second or on the proxy's name.
fn told_value(name: &str, value: &str, response: &Response) -> String {
    match name {
        "age" => value.parse().map_or(value.to_owned(), |age: u64| format!("{}+", age / 10 * 10)),
        "date" if is_now(value) => "now".into(),
        "server" => value.split('/').next().unwrap_or(value).to_owned(),
        "via" => "*".into(),
        "content-type" => without_boundary(value, response),
        _ => value.to_owned(),
    }
}

/// Whether it is a date of this test's time.
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

fn tell_asked(asked: &Asked, sequence: &Sequence) -> String {
    let mut told = asked.method.clone();
    for name in CONDITIONS.iter().chain(&sequence.passed) {
        if let Some(value) = asked.field(name) {
            let value = if *name == "via" { "*" } else { value };
            told += &format!(" {name}={value}");
        }
    }
    told
}
