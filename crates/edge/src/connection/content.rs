//! A reply's content onto the connection, as it arrives: one stretch, or several in parts.

use std::io;

use thalweg_cache::Failure;
use thalweg_http::chunked::LAST_CHUNK;
use thalweg_record::Cut;

use crate::answer::Found;
use crate::multipart::Multipart;
use crate::reply::Delimited;
use crate::send::{CHUNK_BYTES_MAX, SENDFILE_BYTES_MIN, Sender};
use crate::sent::Sent;

const _: () = assert!(SENDFILE_BYTES_MIN <= CHUNK_BYTES_MAX);

/// Head and several stretches of content, each with what stands before it.
pub(super) async fn send_parts(
    sender: &mut Sender<'_>,
    head: &[u8],
    found: &mut Found,
    multipart: &Multipart,
    sent: &mut Sent,
) -> Result<(), Cut> {
    sender.head(head, true).await.map_err(cut_of)?;
    for (part_head, range) in &multipart.parts {
        found.content.seek(range);
        let left = range.end - range.start;
        let content = (Some(left), Delimited::Length(left), false);
        send_content(sender, part_head, found, content, sent).await?;
    }
    sender.bytes(&multipart.end(), false).await.map_err(cut_of)
}

/// Head and content, as it arrives. `left` is how much there will be, if known; `trailers` whether the client takes them.
pub(super) async fn send_content(
    sender: &mut Sender<'_>,
    head: &[u8],
    found: &mut Found,
    (mut left, delimited, trailers): (Option<u64>, Delimited, bool),
    sent: &mut Sent,
) -> Result<(), Cut> {
    let most = |left: Option<u64>| match left {
        Some(left) => usize::try_from(left).unwrap_or(usize::MAX),
        None => CHUNK_BYTES_MAX,
    };
    let chunked = delimited == Delimited::Chunked;
    // The end goes with the last content if that is known, as the head goes with the first.
    let mut ended = false;
    match found.content.try_next(most(left)) {
        Some(Ok(Some(piece))) => {
            if chunked {
                ended = !trailers && found.content.is_at_end();
                sender.chunk(head, &piece, ended).await.map_err(cut_of)?;
            } else {
                sender.head_and_piece(head, &piece).await.map_err(cut_of)?;
            }
            sent.count(&piece, &mut left);
        }
        other => {
            sender.head(head, false).await.map_err(cut_of)?;
            other.transpose().map_err(|failure| cut_of_fill(&failure))?;
        }
    }
    while left != Some(0) && !ended {
        let next = match found.content.try_next(most(left)) {
            Some(next) => next,
            None => {
                sender.flush();
                found.content.next(most(left)).await
            }
        };
        let piece = match next {
            Ok(Some(piece)) => piece,
            Ok(None) if left.is_none() => break,
            Ok(None) => return Err(Cut::BackendFailed),
            Err(failure) => return Err(cut_of_fill(&failure)),
        };
        if chunked {
            ended = !trailers && found.content.is_at_end();
            sender.chunk(&[], &piece, ended).await.map_err(cut_of)?;
        } else {
            sender.piece(&piece).await.map_err(cut_of)?;
        }
        sent.count(&piece, &mut left);
    }
    if chunked && !ended {
        match found.content.trailer().filter(|_| trailers) {
            Some(trailer) => sender.trailer(trailer.fields()).await,
            None => sender.bytes(LAST_CHUNK, false).await,
        }
        .map_err(cut_of)?;
    }
    sender.flush();
    Ok(())
}

pub(super) fn cut_of(error: io::Error) -> Cut {
    match error.kind() {
        io::ErrorKind::TimedOut => Cut::ClientStalled,
        io::ErrorKind::UnexpectedEof => Cut::StorageFailed,
        _ => Cut::ClientClosed,
    }
}

fn cut_of_fill(failure: &Failure) -> Cut {
    if *failure == Failure::Unreadable { Cut::StorageFailed } else { Cut::BackendFailed }
}
