//! The bytes of a terminal as keys (ECMA-48 §5.4, and what xterm sends). Pure.

/// A key that means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// A printable character of ASCII.
    Char(char),
    Enter,
    Escape,
    Left,
    Right,
    Home,
    End,
    /// Removes before the caret: a character, a word, everything.
    Backspace,
    EraseWord,
    EraseLine,
    /// Removes at the caret.
    Delete,
}

/// The keys of what one read gave. A terminal writes the bytes of a key at once: an escape with nothing behind it is the key.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let (mut keys, mut rest) = (Vec::new(), bytes);
    while let [first, behind @ ..] = rest {
        let (key, behind) = match (first, behind) {
            (0x1b, [b'[' | b'O', sequence @ ..]) => sequence_key(sequence),
            _ => (single(*first), behind),
        };
        keys.extend(key);
        rest = behind;
    }
    keys
}

fn single(byte: u8) -> Option<Key> {
    match byte {
        b' '..=b'~' => Some(Key::Char(byte.into())),
        b'\r' | b'\n' => Some(Key::Enter),
        0x1b => Some(Key::Escape),
        0x7f | 0x08 => Some(Key::Backspace),
        0x01 => Some(Key::Home),      // Ctrl-A
        0x05 => Some(Key::End),       // Ctrl-E
        0x15 => Some(Key::EraseLine), // Ctrl-U
        0x17 => Some(Key::EraseWord), // Ctrl-W
        _ => None,
    }
}

/// The key of a control sequence after its introducer, and what is behind it.
fn sequence_key(sequence: &[u8]) -> (Option<Key>, &[u8]) {
    let is_final = |byte: &u8| (0x40..=0x7e).contains(byte);
    let end = sequence.iter().position(is_final).map_or(sequence.len(), |at| at + 1);
    let (sequence, behind) = sequence.split_at(end);
    let key = match sequence {
        b"C" => Some(Key::Right),
        b"D" => Some(Key::Left),
        b"H" | b"1~" | b"7~" => Some(Key::Home),
        b"F" | b"4~" | b"8~" => Some(Key::End),
        b"3~" => Some(Key::Delete),
        _ => None,
    };
    (key, behind)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn bytes_are_keys() {
        let shown = |bytes| format!("{:?}", keys(bytes));
        expect!["[Char('/'), Char('a'), Char(' '), Enter, Enter]"].assert_eq(&shown(b"/a \r\n"));
        expect!["[Left, Right, Home, End, Home, Delete]"]
            .assert_eq(&shown(b"\x1b[D\x1b[C\x1bOH\x1bOF\x1b[1~\x1b[3~"));
        expect!["[Backspace, EraseLine, EraseWord, Home, End]"].assert_eq(&shown(b"\x7f\x15\x17\x01\x05"));
        expect!["[Escape]"].assert_eq(&shown(b"\x1b"));
        expect!["[Escape, Escape, Char('q')]"].assert_eq(&shown(b"\x1b\x1bq"));
        // Keys without a meaning, a click, a sequence that breaks off, bytes of UTF-8.
        expect!["[Char('x')]"].assert_eq(&shown(b"\x1b[A\x1b[15~\x1b[<0;3;4Mx\x1b[1;"));
        expect!["[]"].assert_eq(&shown("\u{e9}\t\0".as_bytes()));
    }
}
