//! Decimal numbers in field values: `1*DIGIT`, without sign or spaces. Overflow is reported.

/// Buffer size required by [`format`], in bytes: the number of digits in `u64::MAX`.
pub const DECIMAL_BYTES_MAX: usize = 20;

/// A parsed `1*DIGIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decimal {
    /// A number that fits into 64 bits.
    Value(u64),
    /// A number that does not fit into 64 bits.
    Overflow,
}

/// Parses `1*DIGIT`; `None` if `text` is empty or contains any other byte.
pub fn parse(text: &[u8]) -> Option<Decimal> {
    if text.is_empty() {
        return None;
    }
    let mut value = Some(0u64);
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.and_then(|v| v.checked_mul(10)).and_then(|v| v.checked_add(u64::from(digit)));
    }
    Some(value.map_or(Decimal::Overflow, Decimal::Value))
}

/// Writes `value` in decimal at the end of `buffer` and returns the digits.
pub fn format(value: u64, buffer: &mut [u8; DECIMAL_BYTES_MAX]) -> &[u8] {
    let mut rest = value;
    let mut at = buffer.len();
    loop {
        at -= 1;
        // The cast is lossless: the value is below 10.
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &buffer[at..];
        }
    }
}

/// Appends `value` in decimal to `out`.
pub fn write(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(format(value, &mut [0; DECIMAL_BYTES_MAX]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_parsed() {
        assert_eq!(parse(b"0"), Some(Decimal::Value(0)));
        assert_eq!(parse(b"18446744073709551615"), Some(Decimal::Value(u64::MAX)));
        assert_eq!(parse(b"18446744073709551616"), Some(Decimal::Overflow));
        for text in [&b""[..], b"+1", b"-1", b" 1", b"1 ", b"1.0", b"0x1", b"1_0"] {
            assert_eq!(parse(text), None);
        }
    }

    #[test]
    fn written_numbers_parse_back() {
        for value in [0, 9, 10, 1234, u64::MAX] {
            assert_eq!(parse(format(value, &mut [0; 20])), Some(Decimal::Value(value)));
        }
    }
}
