//! HTTP messages and their headers, as named in VCL.

use thalweg_http::name::Name;

use crate::words::words;

words! {
    /// A message that has variables and headers.
    pub enum Message {
        /// The client's request.
        Req = "req",
        /// Same as `req`, because there are no sub-requests.
        ReqTop = "req_top",
        /// The request to the backend.
        Bereq = "bereq",
        /// The backend's response.
        Beresp = "beresp",
        /// The stored response.
        Obj = "obj",
        /// The response to the client.
        Resp = "resp",
    }
}

/// A named header of a message.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) message: Message,
    pub(crate) name: Name,
    /// Whether the header is the `Host` of a request.
    pub(crate) is_host: bool,
}

impl Header {
    /// Creates a header; `None` if `name` is not a valid field name.
    pub(crate) fn new(message: Message, name: &str) -> Option<Header> {
        let is_host = matches!(message, Message::Req | Message::ReqTop | Message::Bereq)
            && name.eq_ignore_ascii_case("host");
        Some(Header { message, name: Name::new(name)?, is_host })
    }
}
