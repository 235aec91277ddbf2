//! Patterns that are regular, and mean the same to `regex-automata` as to PCRE: they need no backtracking and no limits.
//!
//! **Invariant:** such a pattern matches where PCRE finds it, and its groups lie where PCRE says. What the two read in
//! different ways (`a++`, `\v`, `\<`, `[]-a]`, `{,2}`) and what only one of them knows is left to PCRE. Source: pcre2pattern(3).

use regex_automata::meta::{Config, Regex};
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassBracketed, ClassSet, ClassSetItem, Flag, Flags, FlagsItemKind, GroupKind,
    Literal, LiteralKind, RepetitionKind, RepetitionRange, Span, SpecialLiteralKind,
};

use super::{GROUPS_MAX, Groups};

/// Bytes of a text; PCRE and its limits have what is longer: a search may read to the end from each place where it begins.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of an automaton's tables, and of what a search keeps between texts.
const TABLES_BYTES_MAX: usize = 64 * 1024;
const CACHE_BYTES_MAX: usize = 128 * 1024;

/// A pattern that needs no PCRE.
#[derive(Debug)]
pub(super) struct Regular {
    regex: Regex,
    /// PCRE's `$` is before a last line end too.
    has_end: bool,
}

impl Regular {
    pub(super) fn new(pattern: &str) -> Option<Regular> {
        let ast = ParserBuilder::new().build().parse(pattern).ok()?;
        let mut reading = Reading { pattern, has_end: false };
        if !reading.is_the_same(&ast) {
            return None;
        }
        let config = Config::new()
            .match_kind(MatchKind::LeftmostFirst)
            .utf8_empty(false)
            .nfa_size_limit(Some(TABLES_BYTES_MAX))
            .onepass_size_limit(Some(TABLES_BYTES_MAX))
            .dfa_size_limit(Some(TABLES_BYTES_MAX))
            .hybrid_cache_capacity(CACHE_BYTES_MAX);
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        let regex = Regex::builder().configure(config).syntax(syntax).build(pattern).ok()?;
        Some(Regular { regex, has_end: reading.has_end })
    }

    /// Whether it says of `text` what PCRE says, and soon.
    pub(super) fn reads(&self, text: &[u8]) -> bool {
        text.len() <= TEXT_BYTES_MAX && !(self.has_end && text.ends_with(b"\n"))
    }

    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// The first match that begins at `from` or behind, and its groups if they are needed.
    pub(super) fn find(&self, text: &[u8], from: usize, needs_groups: bool) -> Option<Groups> {
        let mut slots = [None; 2 * GROUPS_MAX];
        let slots = if needs_groups { &mut slots[..] } else { &mut slots[..2] };
        self.regex.search_slots(&Input::new(text).range(from..), slots)?;
        let mut groups = Groups::default();
        for (group, slots) in groups.iter_mut().zip(slots.chunks_exact(2)) {
            *group = slots[0].map(NonMaxUsize::get).zip(slots[1].map(NonMaxUsize::get));
        }
        Some(groups)
    }
}

/// A pattern that is looked through for what PCRE reads in another way.
struct Reading<'p> {
    pattern: &'p str,
    has_end: bool,
}

impl Reading<'_> {
    fn is_the_same(&mut self, ast: &Ast) -> bool {
        match ast {
            Ast::Empty(_) | Ast::Dot(_) | Ast::ClassPerl(_) => true,
            Ast::Flags(set) => is_plain(&set.flags),
            Ast::Literal(literal) => is_literal(literal),
            Ast::Assertion(assertion) => {
                self.has_end |= assertion.kind == AssertionKind::EndLine;
                matches!(
                    assertion.kind,
                    AssertionKind::StartLine
                        | AssertionKind::EndLine
                        | AssertionKind::StartText
                        | AssertionKind::EndText
                        | AssertionKind::WordBoundary
                        | AssertionKind::NotWordBoundary
                )
            }
            Ast::ClassUnicode(_) => false,
            Ast::ClassBracketed(class) => self.is_class(class),
            Ast::Repetition(repetition) => {
                // A repetition of one is possessive to PCRE, and where groups of an empty turn lie is not said the same.
                !matches!(*repetition.ast, Ast::Repetition(_))
                    && !may_be_empty(&repetition.ast)
                    && self.is_count(&repetition.op.kind, &repetition.op.span)
                    && self.is_the_same(&repetition.ast)
            }
            Ast::Group(group) => {
                let is_plain = match &group.kind {
                    GroupKind::CaptureIndex(_) | GroupKind::CaptureName { .. } => true,
                    GroupKind::NonCapturing(flags) => is_plain(flags),
                };
                is_plain && self.is_the_same(&group.ast)
            }
            Ast::Alternation(alternation) => {
                // What all begin with is taken once then, though each may want it another number of times.
                !alternation.asts.iter().all(begins_with_choice)
                    && alternation.asts.iter().all(|ast| self.is_the_same(ast))
            }
            Ast::Concat(concat) => concat.asts.iter().all(|ast| self.is_the_same(ast)),
        }
    }

    fn text(&self, span: &Span) -> &str {
        &self.pattern[span.start.offset..span.end.offset]
    }

    /// Braces that PCRE takes for a count.
    fn is_count(&self, kind: &RepetitionKind, span: &Span) -> bool {
        let RepetitionKind::Range(range) = kind else { return true };
        // PCRE 10.42 looks for what it begins with in a group that is there no time: `(/+?|^a){0}$` finds nothing in `a`.
        if matches!(range, RepetitionRange::Exactly(0) | RepetitionRange::Bounded(_, 0)) {
            return false;
        }
        let text = match range {
            RepetitionRange::Exactly(count) => format!("{{{count}}}"),
            RepetitionRange::AtLeast(min) => format!("{{{min},}}"),
            RepetitionRange::Bounded(min, max) => format!("{{{min},{max}}}"),
        };
        self.text(span).trim_end_matches('?') == text
    }

    fn is_class(&self, class: &ClassBracketed) -> bool {
        let text = self.text(&class.span);
        let members = text.trim_start_matches('[').trim_start_matches('^');
        let is_read_otherwise = ["--", "&&", "~~"].iter().any(|operator| text.contains(operator));
        !is_read_otherwise && !members.starts_with(']') && is_set(&class.kind)
    }
}

/// Whether there are several ways to match what it begins with.
fn begins_with_choice(ast: &Ast) -> bool {
    match ast {
        Ast::Concat(concat) => concat.asts.first().is_some_and(begins_with_choice),
        Ast::Repetition(_) | Ast::Alternation(_) => true,
        Ast::Group(group) => begins_with_choice(&group.ast),
        _ => false,
    }
}

/// Whether it may match nothing.
fn may_be_empty(ast: &Ast) -> bool {
    match ast {
        Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => true,
        Ast::Literal(_) | Ast::Dot(_) | Ast::ClassUnicode(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) => {
            false
        }
        Ast::Repetition(repetition) => is_optional(&repetition.op.kind) || may_be_empty(&repetition.ast),
        Ast::Group(group) => may_be_empty(&group.ast),
        Ast::Alternation(alternation) => alternation.asts.iter().any(may_be_empty),
        Ast::Concat(concat) => concat.asts.iter().all(may_be_empty),
    }
}

fn is_optional(kind: &RepetitionKind) -> bool {
    match kind {
        RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore => true,
        RepetitionKind::OneOrMore => false,
        RepetitionKind::Range(
            RepetitionRange::Exactly(min) | RepetitionRange::AtLeast(min) | RepetitionRange::Bounded(min, _),
        ) => *min == 0,
    }
}

fn is_plain(flags: &Flags) -> bool {
    flags
        .items
        .iter()
        .all(|item| matches!(item.kind, FlagsItemKind::Negation | FlagsItemKind::Flag(Flag::CaseInsensitive)))
}

fn is_literal(literal: &Literal) -> bool {
    let is_known = match &literal.kind {
        LiteralKind::Verbatim | LiteralKind::Meta | LiteralKind::Superfluous => true,
        LiteralKind::Special(special) => matches!(
            special,
            SpecialLiteralKind::Tab | SpecialLiteralKind::LineFeed | SpecialLiteralKind::CarriageReturn
        ),
        LiteralKind::Octal | LiteralKind::HexFixed(_) | LiteralKind::HexBrace(_) => false,
    };
    is_known && literal.c.is_ascii()
}

fn is_set(set: &ClassSet) -> bool {
    let ClassSet::Item(item) = set else { return false };
    let is_member = |item: &ClassSetItem| match item {
        ClassSetItem::Literal(literal) => is_literal(literal),
        ClassSetItem::Range(range) => is_literal(&range.start) && is_literal(&range.end),
        ClassSetItem::Empty(_) | ClassSetItem::Ascii(_) | ClassSetItem::Perl(_) => true,
        ClassSetItem::Unicode(_) | ClassSetItem::Bracketed(_) | ClassSetItem::Union(_) => false,
    };
    match item {
        ClassSetItem::Union(union) => union.items.iter().all(is_member),
        item => is_member(item),
    }
}
