//! Upload errors and their responses.

use std::fmt;
use std::time::Duration;

use hyper::StatusCode;
use thalweg_media::error::{Error as MediaError, Fault as MediaFault};

use crate::live::ChannelError;
use crate::live::channel::Refusal;

/// An upload error.
#[derive(Debug)]
pub(super) enum Fault {
    Channel(ChannelError),
    Type(String),
    Extension(String),
    Media(MediaError),
    Refused(Refusal),
    /// The path does not identify the track, and the channel has several tracks.
    WhichTrack,
    NotAManifest,
    /// The connection broke, or its transfer coding is invalid.
    Transport(hyper::Error),
    /// No byte arrived for this long.
    Idle(Duration),
    /// The shared memory for incomplete chunks is exhausted.
    NoRoom,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Channel(ChannelError::Name) => {
                f.write_str("invalid channel name: expected 1 to 64 letters, digits, '.', '_', '~' or '-'")
            }
            Fault::Channel(ChannelError::TooMany) => {
                f.write_str("too many live channels: raise channels_max")
            }
            Fault::Type(found) => {
                write!(f, "media type {found} is not accepted: send CMAF as video/mp4 or audio/mp4")
            }
            Fault::Extension(found) => write!(f, ".{found} is not accepted: send CMAF"),
            Fault::Media(error) => error.fmt(f),
            Fault::Refused(refusal) => refusal.fmt(f),
            Fault::WhichTrack => {
                f.write_str("the path does not identify the track: name uploads TRACK-NUMBER.m4s")
            }
            Fault::NotAManifest => f.write_str("content is not a manifest, but the file name is"),
            Fault::Idle(limit) => write!(f, "no byte of the upload arrived for {limit:?}"),
            Fault::NoRoom => f.write_str("no memory left for incomplete chunks"),
            Fault::Transport(error) => write!(f, "upload interrupted: {error}"),
        }
    }
}

impl Fault {
    /// Returns the response status. DASH-IF Live Media Ingest specifies 415 for an unsupported
    /// media type, 412 for a missing header, and 400 for any other invalid upload.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Fault::Channel(ChannelError::Name) => StatusCode::NOT_FOUND,
            Fault::Channel(ChannelError::TooMany) => StatusCode::SERVICE_UNAVAILABLE,
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
