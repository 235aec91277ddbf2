//! The character classes of RFC 9110 §5.6: tokens, optional white space, field values.

/// Returns whether `text` is a `token` (RFC 9110 §5.6.2): one or more tchar. Every field name must
/// pass this check before [`Fields`](crate::Fields) accepts it.
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| TCHAR[*byte as usize])
}

/// Trims spaces and tabs around `text` (`OWS`, RFC 9110 §5.6.3).
pub fn trim_ows(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Returns whether `byte` is valid in a field value (RFC 9110 §5.5): visible, space, tab or
/// obs-text.
pub(crate) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

static TCHAR: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        // The cast is lossless: `byte` is below 256.
        let c = byte as u8;
        table[byte] = c.is_ascii_alphanumeric()
            || matches!(
                c,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};
