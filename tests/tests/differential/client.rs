//! Client that sends one request on a new connection and reads the response until the connection
//! closes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::backend::with_dates;
use crate::sequence::Request;

/// Time limit for a response.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: String,
    /// Whether the response is complete according to its framing.
    pub(crate) whole: bool,
}

/// Sends a request of a sequence, without reading the response.
pub(crate) fn send(address: SocketAddr, name: &str, request: &Request) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let Request { method, tail, fields } = request;
    let fields = with_dates(fields);
    let head = format!("{method} /{name}/{tail} HTTP/1.1\r\nHost: media.example\r\nConnection: close\r\n");
    let fields: String = fields.lines().map(|line| format!("{line}\r\n")).collect();
    stream.write_all(format!("{head}{fields}\r\n").as_bytes())?;
    Ok(stream)
}

/// Reads the response to `request`.
pub(crate) fn receive(mut stream: TcpStream, request: &Request) -> std::io::Result<Response> {
    let mut input = Vec::new();
    stream.read_to_end(&mut input)?;
    let input = String::from_utf8_lossy(&input);
    let (head, content) = input.split_once("\r\n\r\n").unwrap_or((&input, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|word| word.parse().ok());
    let fields: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut response = Response { status: status.unwrap_or(0), fields, content: String::new(), whole: true };
    let bodyless = request.method == "HEAD" || matches!(response.status, 204 | 304);
    if response.field("transfer-encoding").is_some() && !bodyless {
        let content = dechunked(content);
        response.whole = content.is_some();
        response.content = content.unwrap_or_default();
    } else {
        let length = response.field("content-length").and_then(|length| length.parse::<usize>().ok());
        response.whole = if bodyless { content.is_empty() } else { length == Some(content.len()) };
        response.content = content.to_owned();
    }
    Ok(response)
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Decodes chunked content; `None` if incomplete.
fn dechunked(mut chunks: &str) -> Option<String> {
    let mut content = String::new();
    loop {
        let (size, rest) = chunks.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(content);
        }
        content += rest.get(..size)?;
        chunks = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}
