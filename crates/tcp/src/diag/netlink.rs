//! Netlink framing: splits a buffer into messages, each a `struct nlmsghdr` and a payload
//! (`include/uapi/linux/netlink.h`).
//!
//! **Invariant:** iteration ends at the end of the buffer or after the first malformed message.

use super::Malformed;

/// Size of `struct nlmsghdr`.
pub const HEADER_BYTES: usize = 16;

/// `NLMSG_ALIGNTO` and `NLA_ALIGNTO`.
const ALIGNMENT_BYTES: usize = 4;

/// Size of `struct nlattr`.
pub(crate) const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// Mask that extracts the attribute type from `nla_type`, without `NLA_F_NESTED` and
/// `NLA_F_NET_BYTEORDER`.
const ATTRIBUTE_KIND: u16 = 0x3fff;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// `NLM_F_MULTI`: part of a multipart reply.
const NLM_F_MULTI: u16 = 0x2;
/// `NLM_F_DUMP_INTR`: the table changed during the dump, so sockets may be missing or repeated.
const NLM_F_DUMP_INTR: u16 = 0x10;

/// A netlink message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The message's content.
    pub body: Body<'a>,
    /// Sequence number of the request answered by this message.
    pub sequence: u32,
    /// Whether the table changed during the dump (`NLM_F_DUMP_INTR`).
    pub is_interrupted: bool,
    /// The complete message, including its header but not its trailing padding.
    pub bytes: &'a [u8],
}

/// The content of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// The end of a dump, or an acknowledgement.
    Done,
    /// The request failed with this error number, which is positive.
    Failed(i32),
    /// Any other message.
    Message {
        /// `nlmsg_type`.
        kind: u16,
        /// The bytes after the message header.
        payload: &'a [u8],
    },
}

/// Iterator over the messages in a buffer.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Iterates over the messages in `bytes`, which must start with a message header.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the number of bytes not yet read.
    pub fn left_bytes(&self) -> usize {
        self.rest.len()
    }

    /// Splits off the next message and returns it with its type.
    fn split(&mut self) -> Result<(u16, Frame<'a>), Malformed> {
        let left = self.rest;
        let Some(&[l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..]) = left.first_chunk::<HEADER_BYTES>()
        else {
            return Err(Malformed::FrameShort { bytes: left.len() });
        };
        let length_bytes = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let (kind, flags) = (u16::from_ne_bytes([k0, k1]), u16::from_ne_bytes([f0, f1]));
        let sequence = u32::from_ne_bytes([s0, s1, s2, s3]);
        if length_bytes < HEADER_BYTES || length_bytes > left.len() {
            return Err(Malformed::FrameLength { length_bytes, left_bytes: left.len() });
        }
        let bytes = &left[..length_bytes];
        self.rest = left.get(aligned(length_bytes)..).unwrap_or_default();
        let payload = &bytes[HEADER_BYTES..];
        let body = match kind {
            NLMSG_ERROR => ended(i32_at(payload, 0).ok_or(Malformed::ErrorShort { bytes: payload.len() })?),
            // Kernels before 2.6.13 send no status, which means success.
            NLMSG_DONE => ended(i32_at(payload, 0).unwrap_or(0)),
            _ => Body::Message { kind, payload },
        };
        let is_interrupted = flags & NLM_F_DUMP_INTR != 0;
        Ok((kind, Frame { body, sequence, is_interrupted, bytes }))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            match self.split() {
                Ok((NLMSG_NOOP, _)) => {}
                Ok((_, frame)) => return Some(Ok(frame)),
                Err(malformed) => {
                    self.rest = &[];
                    return Some(Err(malformed));
                }
            }
        }
        None
    }
}

/// Builds the end-of-dump message.
pub(super) fn done() -> Vec<u8> {
    let status = 0i32.to_ne_bytes();
    let length = u32::try_from(HEADER_BYTES + status.len()).expect("the message has 20 bytes").to_ne_bytes();
    let (kind, flags) = (NLMSG_DONE.to_ne_bytes(), NLM_F_MULTI.to_ne_bytes());
    [&length[..], &kind, &flags, &[0; 8], &status].concat()
}

/// Decodes the status at the end of a dump: zero for success, or a negative error number.
fn ended(status: i32) -> Body<'static> {
    if status == 0 { Body::Done } else { Body::Failed(status.saturating_neg().max(1)) }
}

/// Splits off the first attribute. Returns its type, its value and the remaining bytes.
pub(crate) fn split_attribute(bytes: &[u8]) -> Result<(u16, &[u8], &[u8]), Malformed> {
    let left_bytes = bytes.len();
    let (Some(length), Some(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) else {
        return Err(Malformed::AttributeShort { bytes: left_bytes });
    };
    let length_bytes = usize::from(length);
    if length_bytes < ATTRIBUTE_HEADER_BYTES || length_bytes > left_bytes {
        return Err(Malformed::AttributeLength { length_bytes, left_bytes });
    }
    let after = bytes.get(aligned(length_bytes)..).unwrap_or_default();
    Ok((kind & ATTRIBUTE_KIND, &bytes[ATTRIBUTE_HEADER_BYTES..length_bytes], after))
}

/// Rounds a length up to netlink's alignment.
pub(crate) fn aligned(length_bytes: usize) -> usize {
    length_bytes.next_multiple_of(ALIGNMENT_BYTES)
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().copied().map(u64::from_ne_bytes)
}

fn i32_at(bytes: &[u8], offset: usize) -> Option<i32> {
    bytes.get(offset..)?.first_chunk().copied().map(i32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + payload.len()).unwrap();
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes()].concat();
        bytes.extend([7u32.to_ne_bytes(), [0; 4]].concat());
        bytes.extend(payload);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn bodies(bytes: &[u8]) -> Vec<Result<Body<'_>, Malformed>> {
        Frames::new(bytes).map(|frame| frame.map(|frame| frame.body)).collect()
    }

    #[test]
    fn every_kind_of_message_is_decoded() {
        let bytes = [
            frame(20, 2, &[1, 2, 3]),
            frame(NLMSG_NOOP, 0, &[]),
            frame(20, NLM_F_DUMP_INTR, &[]),
            frame(NLMSG_DONE, 0, &0i32.to_ne_bytes()),
            frame(NLMSG_ERROR, 0, &(-2i32).to_ne_bytes()),
            frame(NLMSG_DONE, 0, &(-4i32).to_ne_bytes()),
            frame(NLMSG_ERROR, 0, &0i32.to_ne_bytes()),
        ]
        .concat();
        let found = bodies(&bytes);
        let message = |payload| Ok(Body::Message { kind: 20, payload });
        let ends = [Ok(Body::Done), Ok(Body::Failed(2)), Ok(Body::Failed(4)), Ok(Body::Done)];
        assert_eq!(found[..2], [message(&[1, 2, 3][..]), message(&[])]);
        assert_eq!(found[2..], ends);
        let flags: Vec<_> = Frames::new(&bytes).map(|frame| frame.unwrap().is_interrupted).collect();
        assert_eq!(flags, [false, true, false, false, false, false]);
        let first = Frames::new(&bytes).next().unwrap().unwrap();
        assert_eq!((first.sequence, first.bytes.len()), (7, HEADER_BYTES + 3));
    }

    #[test]
    fn truncated_or_wrong_length_ends_iteration_with_an_error() {
        let whole = [frame(20, 0, &[1; 8]), frame(20, 0, &[2; 8])].concat();
        let half = whole.len() / 2;
        for end in 0..whole.len() {
            let expected = match end {
                _ if end % half == 0 => None,
                _ if end % half < HEADER_BYTES => Some(Malformed::FrameShort { bytes: end % half }),
                _ => Some(Malformed::FrameLength { length_bytes: half, left_bytes: end % half }),
            };
            let found = bodies(&whole[..end]);
            assert_eq!(found.len(), end / half + usize::from(expected.is_some()), "at {end}");
            assert_eq!(found.into_iter().find_map(Result::err), expected, "at {end}");
        }
        let mut lying = frame(20, 0, &[]);
        lying[0] = 15;
        let expected = Malformed::FrameLength { length_bytes: 15, left_bytes: HEADER_BYTES };
        assert_eq!(bodies(&lying), [Err(expected)]);
        let malformed = [Err(Malformed::ErrorShort { bytes: 3 })];
        assert_eq!(bodies(&frame(NLMSG_ERROR, 0, &[0; 3])), malformed);
    }
}
