//! The character classes of RFC 9110 §5.6: tokens, optional white space, field values.

/// Whether `text` is a `token` (RFC 9110 §5.6.2): at least one tchar and nothing else.
///
/// Every field name must pass it before it is handed to [`Fields`](crate::Fields).
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| TCHAR[*byte as usize])
}

/// `text` without the spaces and tabs around it (`OWS`, RFC 9110 §5.6.3).
pub fn trim_ows(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Whether `byte` may stand in a field value (RFC 9110 §5.5): visible, space, tab or obs-text.
pub(crate) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

static TCHAR: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        // The cast keeps the value: `byte` is below 256.
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
