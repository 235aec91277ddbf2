//! The filter as it is edited: a line with a caret, and what is wrong with it if it could not be applied. Pure.

use thalweg_tcp::diag::{Filter, FilterError, States};

use super::keys::Key;

/// Characters of a filter that is typed.
const CHARACTERS_MAX: usize = 1000;
/// What stands before it.
const LABEL: &str = "filter: ";
/// Around the character at the caret: reverse video.
const CARET: [&str; 2] = ["\x1b[7m", "\x1b[27m"];

/// A filter that is edited.
#[derive(Debug)]
pub(super) struct Prompt {
    text: Vec<char>,
    /// Its place in `text`, or behind it.
    caret: usize,
    fault: Option<FilterError>,
}

/// What came of a key.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It goes on.
    Edited,
    /// The filter is to stay as it was.
    Cancelled,
    /// This one is to be applied.
    Applied(String, Filter),
}

impl Prompt {
    /// Begins with a filter, the caret behind it.
    pub(super) fn of(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        Self { caret: text.len(), text, fault: None }
    }

    /// What a key does.
    pub(super) fn press(&mut self, key: Key) -> Outcome {
        self.fault = None;
        match key {
            Key::Enter => return self.apply(),
            Key::Escape => return Outcome::Cancelled,
            Key::Char(typed) if self.text.len() < CHARACTERS_MAX => {
                self.text.insert(self.caret, typed);
                self.caret += 1;
            }
            Key::Char(_) => {}
            Key::Left => self.caret = self.caret.saturating_sub(1),
            Key::Right => self.caret = (self.caret + 1).min(self.text.len()),
            Key::Home => self.caret = 0,
            Key::End => self.caret = self.text.len(),
            Key::Backspace => self.erase_from(self.caret.saturating_sub(1)),
            Key::EraseWord => self.erase_from(self.word()),
            Key::EraseLine => self.erase_from(0),
            Key::Delete if self.caret < self.text.len() => {
                self.text.remove(self.caret);
            }
            Key::Delete => {}
        }
        Outcome::Edited
    }

    fn apply(&mut self) -> Outcome {
        let text: String = self.text.iter().collect();
        match Filter::parse_with(&text, States::CONNECTED) {
            Ok(filter) => Outcome::Applied(text.trim().to_owned(), filter),
            Err(fault) => {
                self.fault = Some(fault);
                Outcome::Edited
            }
        }
    }

    /// Where the word before the caret begins.
    fn word(&self) -> usize {
        let before = &self.text[..self.caret];
        let end = before.iter().rposition(|one| *one != ' ').unwrap_or(0);
        before[..end].iter().rposition(|one| *one == ' ').map_or(0, |space| space + 1)
    }

    fn erase_from(&mut self, place: usize) {
        self.text.drain(place..self.caret);
        self.caret = place;
    }

    /// The lines that show it: the filter, its part around the caret where there is no room for all, and the fault.
    pub(super) fn lines(&self, columns: usize) -> Vec<String> {
        let room = columns.saturating_sub(LABEL.len()).max(1);
        let first = (self.caret + 1).saturating_sub(room);
        let [begin, end] = CARET;
        let text = |from: usize, upto: usize| -> String { self.text.iter().take(upto).skip(from).collect() };
        let at_caret = self.text.get(self.caret).unwrap_or(&' ');
        let (before, behind) = (text(first, self.caret), text(self.caret + 1, first + room));
        let mut lines = vec![format!("{LABEL}{before}{begin}{at_caret}{end}{behind}")];
        let fault = self.fault.as_ref().map(ToString::to_string).unwrap_or_default();
        for line in fault.lines() {
            let line: Vec<char> = line.chars().collect();
            lines.extend(line.chunks(columns.max(1)).map(|part| part.iter().collect::<String>()));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::keys::keys;
    use super::*;

    /// What is shown after each read of keys, `|` around the caret, and what came of the last one.
    fn shown(begin: &str, reads: &[&[u8]], columns: usize) -> String {
        let mut prompt = Prompt::of(begin);
        let mut outcome = Outcome::Edited;
        reads.iter().flat_map(|read| keys(read)).for_each(|key| outcome = prompt.press(key));
        let lines = prompt.lines(columns).join("\n").replace(CARET[0], "|").replace(CARET[1], "|");
        match outcome {
            Outcome::Edited => lines,
            Outcome::Cancelled => format!("{lines}\ncancelled"),
            Outcome::Applied(text, filter) => format!("{lines}\n{text:?} {:?}", filter.local_ports),
        }
    }

    #[test]
    fn a_filter_is_edited_and_applied() {
        expect!["filter: sport 443| |"].assert_eq(&shown("sport 443", &[], 80));
        expect![[r#"
            filter: sport 8443| |
            "sport 8443" [8443..=8443]"#]]
        .assert_eq(&shown("sport 443", &[b"\x1b[D\x1b[D\x1b[D8", b"\x05", b" \x7f\r"], 80));
        expect!["filter: |d|port 1"].assert_eq(&shown("sport 1", &[b"\x01\x1b[3~d\x1b[D"], 80));
        expect!["filter: sport 443 | |"].assert_eq(&shown("sport 443 dst ::/0  ", &[b"\x17\x17"], 80));
        expect![[r#"
            filter: | |
            "" []"#]]
        .assert_eq(&shown("sport 443", &[b"\x15\x17\x7f\r"], 80));
        expect![[r#"
            filter: sport 443| |
            cancelled"#]]
        .assert_eq(&shown("sport 443", &[b"\x1b"], 80));
        assert_eq!(Prompt::of("").text.len(), 0);
    }

    #[test]
    fn a_fault_is_told_until_the_next_key() {
        expect![[r#"
            filter: sprt 443| |
            no term begins with sprt (did you mean sport?); there are state, sport, dport, s
            rc, dst
              sprt 443
              ^^^^"#]]
        .assert_eq(&shown("", &[b"sprt 443\r"], 80));
        expect!["filter: sp|r|t 443"].assert_eq(&shown("", &[b"sprt 443\r\x01\x1b[C\x1b[C"], 80));
    }

    #[test]
    fn a_narrow_terminal_shows_what_is_around_the_caret() {
        expect!["filter: 456| |"].assert_eq(&shown("123456", &[], 12));
        expect!["filter: 1|2|34"].assert_eq(&shown("123456", &[b"\x01\x1b[C"], 12));
        let typed = vec![b'1'; CHARACTERS_MAX + 1];
        assert_eq!(shown("", &[&typed], 2000).len(), LABEL.len() + CHARACTERS_MAX + "| |".len());
    }
}
