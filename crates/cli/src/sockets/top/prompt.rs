//! Filter prompt: an editable line with a caret, and the fault of a rejected filter. Has no I/O.

use ratatui::crossterm::event::{Event, KeyCode};
use ratatui::text::Line;
use thalweg_tcp::diag::{Filter, FilterError, States};
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;

/// Maximum length of a typed filter, in bytes.
const BYTES_MAX: usize = 1000;
/// Text before the filter.
const LABEL: &str = "filter: ";

/// Filter being edited.
#[derive(Debug)]
pub(super) struct Prompt {
    input: Input,
    fault: Option<FilterError>,
}

/// Result of a key press.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Editing continues.
    Edited,
    /// The old filter stays.
    Cancelled,
    /// This filter is applied.
    Applied(String, Filter),
}

impl Prompt {
    /// Starts editing a filter, with the caret at its end.
    pub(super) fn of(text: &str) -> Self {
        Self { input: Input::new(text.to_owned()), fault: None }
    }

    /// Handles a key.
    pub(super) fn press(&mut self, code: KeyCode, event: &Event) -> Outcome {
        self.fault = None;
        match code {
            KeyCode::Enter => return self.apply(),
            KeyCode::Esc => return Outcome::Cancelled,
            KeyCode::Char(_) if self.input.value().len() >= BYTES_MAX => {}
            _ => {
                self.input.handle_event(event);
            }
        }
        Outcome::Edited
    }

    fn apply(&mut self) -> Outcome {
        match Filter::parse_with(self.input.value(), States::CONNECTED) {
            Ok(filter) => Outcome::Applied(self.input.value().trim().to_owned(), filter),
            Err(fault) => {
                self.fault = Some(fault);
                Outcome::Edited
            }
        }
    }

    /// Formats the prompt: the filter, scrolled to the caret if it is too long, and the fault. Also
    /// returns the caret's column in the first line.
    pub(super) fn lines(&self, columns: usize) -> (Vec<Line<'static>>, usize) {
        let room = columns.saturating_sub(LABEL.len() + 1).max(1);
        let first = self.input.visual_scroll(room);
        let shown: String = self.input.value().chars().skip(first).take(room).collect();
        let mut lines = vec![Line::raw(format!("{LABEL}{shown}"))];
        let fault = self.fault.as_ref().map(ToString::to_string).unwrap_or_default();
        for line in fault.lines() {
            let line: Vec<char> = line.chars().collect();
            lines.extend(line.chunks(columns.max(1)).map(|part| Line::raw(String::from_iter(part))));
        }
        (lines, LABEL.len() + self.input.visual_cursor() - first)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use ratatui::crossterm::event::{KeyEvent, KeyModifiers};

    use super::*;

    /// Checks the lines after these keys, with `|` before the caret, and the last key's outcome.
    fn check(begin: &str, keys: &[KeyCode], columns: usize, expected: Expect) {
        let mut prompt = Prompt::of(begin);
        let mut outcome = Outcome::Edited;
        for code in keys {
            outcome = prompt.press(*code, &Event::Key(KeyEvent::new(*code, KeyModifiers::NONE)));
        }
        let (lines, caret) = prompt.lines(columns);
        let mut lines: Vec<_> = lines.iter().map(Line::to_string).collect();
        lines[0].insert(caret, '|');
        lines.extend(match outcome {
            Outcome::Edited => None,
            Outcome::Cancelled => Some("cancelled".to_owned()),
            Outcome::Applied(text, filter) => Some(format!("{text:?} {:?}", filter.local_ports)),
        });
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn filter_is_edited_and_applied_or_cancelled() {
        use KeyCode::{Backspace, Char, Delete, End, Enter, Esc, Home, Left};
        check("sport 443", &[], 80, expect!["filter: sport 443|"]);
        check(
            "sport 443",
            &[Left, Left, Left, Char('8'), End, Char(' '), Backspace, Enter],
            80,
            expect![[r#"
            filter: sport 8443|
            "sport 8443" [8443..=8443]"#]],
        );
        check("sport 1", &[Home, Delete, Char('d'), Left], 80, expect!["filter: |dport 1"]);
        check(
            "sport 443",
            &[Esc],
            80,
            expect![[r#"
            filter: sport 443|
            cancelled"#]],
        );
    }

    #[test]
    fn fault_is_shown_until_the_next_key() {
        check(
            "sprt 443",
            &[KeyCode::Enter],
            80,
            expect![[r#"
            filter: sprt 443|
            unknown term sprt (did you mean sport?); expected one of state, sport, dport, sr
            c, dst
              sprt 443
              ^^^^"#]],
        );
        check("sprt 443", &[KeyCode::Enter, KeyCode::Left], 80, expect!["filter: sprt 44|3"]);
    }

    #[test]
    fn narrow_terminal_shows_the_text_around_the_caret() {
        check("123456", &[], 12, expect!["filter: 456|"]);
        check("123456", &[KeyCode::Home, KeyCode::Right], 12, expect!["filter: 1|23"]);
        let mut full = Prompt::of(&"1".repeat(BYTES_MAX));
        let code = KeyCode::Char('1');
        full.press(code, &Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        assert_eq!(full.input.value().len(), BYTES_MAX);
    }
}
