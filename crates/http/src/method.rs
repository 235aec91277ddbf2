//! Request methods (RFC 9110 §9). Method names are case-sensitive.

/// A request method. Only methods with special handling have a variant; the name of any other
/// method is stored in [`RequestHead`](crate::RequestHead).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`.
    #[default]
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `PATCH` (RFC 5789).
    Patch,
    /// `TRACE`.
    Trace,
    /// `PURGE`, a convention among caches; no RFC defines it.
    Purge,
    /// Any other token.
    Other,
}

impl Method {
    /// Returns the method named `text`, without checking that `text` is a token.
    pub fn parse(text: &[u8]) -> Method {
        match text {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"PURGE" => Method::Purge,
            _ => Method::Other,
        }
    }

    /// Returns the method's name; `OTHER` for [`Method::Other`], so that metric labels stay
    /// bounded.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Patch => "PATCH",
            Method::Trace => "TRACE",
            Method::Purge => "PURGE",
            Method::Other => "OTHER",
        }
    }

    /// Returns whether the method is read-only by definition (RFC 9110 §9.2.1).
    pub fn is_safe(self) -> bool {
        matches!(self, Method::Get | Method::Head | Method::Options | Method::Trace)
    }

    /// Returns whether a request with this method may be resent after its connection fails (RFC
    /// 9110 §9.2.2).
    pub fn is_idempotent(self) -> bool {
        self.is_safe() || matches!(self, Method::Put | Method::Delete)
    }
}
