//! Scripted backend: the n-th request of a sequence gets the n-th scripted response, and the last
//! response is repeated. The backend records all requests. It sends a 304 if a request's condition
//! matches the scripted response. It ignores ranges, except for the rest of a response that breaks
//! off.
//!
//! **Invariant:** a connection has one exchange, and a request is recorded before its response is
//! sent.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thalweg_http::date;

use crate::sequence::{Answer, Form, Sequence};

/// Number of bytes of a halting response that are sent before the proxy gets time to disconnect.
const LITTLE_BYTES: usize = 64 * 1024;
/// Time after which a proxy that is still connected is sent the rest of a response. There is no
/// event to wait for: a proxy that does not want the rest disconnects, but a proxy that wants it
/// sends nothing.
const GONE_MAX: Duration = Duration::from_millis(300);

/// A request as received by the backend.
#[derive(Debug, Clone)]
pub(crate) struct BackendRequest {
    pub(crate) method: String,
    pub(crate) fields: Vec<(String, String)>,
}

/// The backend of one proxy.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    scripts: HashMap<&'static str, Vec<Answer>>,
    seen: Mutex<HashMap<String, Seen>>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    requests: Vec<BackendRequest>,
    /// Number of requests whose responses were sent completely or abandoned by the proxy.
    answered: usize,
    /// Whether responses are held back until the test releases them.
    held: bool,
}

impl Backend {
    pub(crate) fn start(sequences: &[Sequence]) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let scripts = sequences.iter().map(|sequence| (sequence.name, sequence.answers.clone())).collect();
        let state = State { scripts, seen: Mutex::default(), changed: Condvar::new() };
        let backend = Self { address: listener.local_addr()?, state: Arc::new(state) };
        let state = backend.state.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let state = state.clone();
                // A proxy may disconnect at any point in an exchange.
                thread::spawn(move || stream.and_then(|stream| state.exchange(stream)));
            }
        });
        Ok(backend)
    }

    /// Returns the requests of a sequence, without the first `from`.
    pub(crate) fn requests(&self, name: &str, from: usize) -> Vec<BackendRequest> {
        let seen = self.state.seen.lock().unwrap();
        seen.get(name).map(|seen| seen.requests[from..].to_vec()).unwrap_or_default()
    }

    /// Waits until `count` requests of a sequence have arrived; returns `false` on timeout.
    pub(crate) fn wait_for(&self, name: &str, count: usize, time_max: Duration) -> bool {
        self.wait_until(name, time_max, |seen| seen.requests.len() >= count)
    }

    /// Waits until `count` responses of a sequence have been sent or abandoned.
    pub(crate) fn wait_answered(&self, name: &str, count: usize, time_max: Duration) -> bool {
        self.wait_until(name, time_max, |seen| seen.answered >= count)
    }

    fn wait_until(&self, name: &str, time_max: Duration, is_so: impl Fn(&Seen) -> bool) -> bool {
        let seen = self.state.seen.lock().unwrap();
        let waits = |seen: &mut HashMap<String, Seen>| !seen.get(name).is_some_and(&is_so);
        let (_seen, waited) = self.state.changed.wait_timeout_while(seen, time_max, waits).unwrap();
        !waited.timed_out()
    }

    /// Holds or releases the responses of a sequence.
    pub(crate) fn hold(&self, name: &str, held: bool) {
        self.state.seen.lock().unwrap().entry(name.to_owned()).or_default().held = held;
        self.state.changed.notify_all();
    }
}

impl State {
    fn exchange(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(&stream).lines();
        let Some(line) = lines.next().transpose()? else { return Ok(()) };
        let mut words = line.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let name = words.next().unwrap_or_default().split('/').nth(1).unwrap_or_default();
        let mut fields = Vec::new();
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(':') else { break };
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let request = BackendRequest { method, fields };
        let answer = self.note(name, &request);
        let sent = self.send(&stream, name, &answer, &request);
        self.seen.lock().unwrap().entry(name.to_owned()).or_default().answered += 1;
        self.changed.notify_all();
        sent
    }

    fn send(
        &self,
        mut stream: &TcpStream,
        name: &str,
        answer: &Answer,
        request: &BackendRequest,
    ) -> std::io::Result<()> {
        match answer.form {
            Form::Closed => Ok(()),
            Form::Broken(length) => {
                stream.write_all(&until(answer, request, length))?;
                self.wait_while_held(name);
                Ok(())
            }
            Form::Halting(length) => {
                let all = write(answer, request);
                let (first, rest) = all.split_at(all.len() - answer.content.len() + length);
                let (little, rest) = rest.split_at(LITTLE_BYTES);
                stream.write_all(first)?;
                self.wait_while_held(name);
                stream.write_all(little)?;
                stream.set_read_timeout(Some(GONE_MAX))?;
                let has_left = matches!(stream.read(&mut [0]), Ok(0));
                if has_left { Ok(()) } else { stream.write_all(rest) }
            }
            _ => stream.write_all(&write(answer, request)),
        }
    }

    /// Records a request; returns the scripted response once it is released.
    fn note(&self, name: &str, request: &BackendRequest) -> Answer {
        let script = self.scripts.get(name).unwrap_or_else(|| panic!("no script for {name}"));
        let mut seen = self.seen.lock().unwrap();
        let of_name = seen.entry(name.to_owned()).or_default();
        let answer = script[of_name.requests.len().min(script.len() - 1)].clone();
        of_name.requests.push(request.clone());
        self.changed.notify_all();
        drop(seen);
        if !matches!(answer.form, Form::Halting(_) | Form::Broken(_)) {
            self.wait_while_held(name);
        }
        answer
    }

    fn wait_while_held(&self, name: &str) {
        let seen = self.seen.lock().unwrap();
        let _released = self.changed.wait_while(seen, |seen| seen[name].held).unwrap();
    }
}

impl BackendRequest {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Returns the bytes of the scripted response to a request.
fn write(answer: &Answer, request: &BackendRequest) -> Vec<u8> {
    let fields = with_dates(answer.fields);
    let not_modified = answer.status == 200 && client_has(&fields, request);
    let (status, fields) = match answer.not_modified {
        _ if !not_modified => (answer.status, fields),
        Some(fields) => (304, with_dates(fields)),
        None => (304, fields),
    };
    let mut out = format!("HTTP/1.1 {status} Scripted\r\nConnection: close\r\n");
    if field(&fields, "date").is_none() {
        out += &with_dates("Date: {+0}\r\n");
    }
    for line in fields.lines() {
        out += &format!("{line}\r\n");
    }
    let has_content = !matches!(status, 204 | 304);
    match answer.form {
        Form::Chunked if has_content => out += "Transfer-Encoding: chunked\r\n",
        _ if has_content => out += &format!("Content-Length: {}\r\n", answer.content.len()),
        _ => {}
    }
    out += "\r\n";
    if has_content && request.method != "HEAD" {
        match answer.form {
            Form::Chunked => out += &format!("{:x}\r\n{}\r\n0\r\n\r\n", answer.content.len(), answer.content),
            _ => out += answer.content,
        }
    }
    out.into_bytes()
}

/// Returns the bytes of a response that breaks off after `length` bytes of content, or, if
/// requested, of the rest of that response.
fn until(answer: &Answer, request: &BackendRequest, length: usize) -> Vec<u8> {
    let all = answer.content.len();
    if request.field("range") == Some(&format!("bytes={length}-")) {
        let head =
            format!("HTTP/1.1 206 Scripted\r\nConnection: close\r\nContent-Length: {}\r\n", all - length);
        let fields: String = answer.fields.lines().map(|line| format!("{line}\r\n")).collect();
        let rest = &answer.content[length..];
        return format!("{head}{fields}Content-Range: bytes {length}-{}/{all}\r\n\r\n{rest}", all - 1).into();
    }
    let mut out = write(answer, request);
    out.truncate(out.len() - (all - length));
    out
}

/// Returns whether the request's conditions show that the proxy already has the content.
fn client_has(fields: &str, request: &BackendRequest) -> bool {
    let opaque = |tag: &str| tag.trim_start_matches("W/").to_owned();
    match (request.field("if-none-match"), request.field("if-modified-since")) {
        (Some(tag), _) => field(fields, "etag").is_some_and(|own| opaque(own) == opaque(tag)),
        (None, Some(since)) => field(fields, "last-modified") == Some(since),
        (None, None) => false,
    }
}

fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = fields.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// Replaces `{+60}` with the date in 60 seconds.
pub(crate) fn with_dates(text: &str) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut parts = text.split('{');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (offset_s, rest) = part.split_once('}').unwrap();
        let at_s = now_s.checked_add_signed(offset_s.parse().unwrap()).unwrap();
        out += str::from_utf8(&date::format(at_s)).unwrap();
        out += rest;
    }
    out
}
