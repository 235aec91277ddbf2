//! What is wrong with an upload, and how it is answered.

use std::fmt;
use std::time::Duration;

use hyper::StatusCode;
use thalweg_media::error::{Error as MediaError, Fault as MediaFault};

use crate::live::NoChannel;
use crate::live::channel::Refusal;

/// What is wrong with an upload.
#[derive(Debug)]
pub(super) enum Fault {
    Channel(NoChannel),
    Type(String),
    Extension(String),
    Media(MediaError),
    Refused(Refusal),
    /// The path does not say which track it is, and the channel has several.
    WhichTrack,
    NotAManifest,
    /// The connection broke off, or its transfer coding is wrong.
    Transport(hyper::Error),
    /// No byte of it came for so long.
    Idle(Duration),
    /// What all uploads hold back together has no room for more of this one.
    NoRoom,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Channel(NoChannel::Name) => {
                f.write_str("a channel's name has 1 to 64 letters, digits, '.', '_', '~' and '-'")
            }
            Fault::Channel(NoChannel::TooMany) => f.write_str("no room for another channel"),
            Fault::Type(found) => {
                write!(f, "media type {found} is not taken: send CMAF as video/mp4 or audio/mp4")
            }
            Fault::Extension(found) => write!(f, ".{found} is not taken: send CMAF"),
            Fault::Media(error) => error.fmt(f),
            Fault::Refused(refusal) => refusal.fmt(f),
            Fault::WhichTrack => {
                f.write_str("the path does not say which track this is: name uploads TRACK-NUMBER.m4s")
            }
            Fault::NotAManifest => f.write_str("named like a manifest, and is none"),
            Fault::Idle(limit) => write!(f, "no byte of the upload came for {limit:?}"),
            Fault::NoRoom => f.write_str("no memory left for chunks that are not whole yet"),
            Fault::Transport(error) => write!(f, "the upload broke off: {error}"),
        }
    }
}

impl Fault {
    /// Status codes as the specification has them: 415 media type, 412 missing header, else 400.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Fault::Channel(NoChannel::Name) => StatusCode::NOT_FOUND,
            Fault::Channel(NoChannel::TooMany) => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Type(_) | Fault::Extension(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Fault::Media(error) => match error.fault {
                MediaFault::NotIsoBmff | MediaFault::UnsupportedCodec(_) => {
                    StatusCode::UNSUPPORTED_MEDIA_TYPE
                }
                MediaFault::MissingHeader => StatusCode::PRECONDITION_FAILED,
                _ => StatusCode::BAD_REQUEST,
            },
            Fault::Idle(_) => StatusCode::REQUEST_TIMEOUT,
            Fault::Refused(Refusal::Busy { .. }) => StatusCode::CONFLICT,
            Fault::NoRoom | Fault::Refused(Refusal::NoRoom) => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Refused(_) | Fault::WhichTrack | Fault::NotAManifest | Fault::Transport(_) => {
                StatusCode::BAD_REQUEST
            }
        }
    }
}
