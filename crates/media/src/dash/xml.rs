//! XML writer that guarantees well-formed output: elements are nested and values are escaped.

use std::fmt::{self, Write};

/// Builds a document top-down, indented by two spaces.
pub(super) struct Xml {
    out: String,
    open: Vec<&'static str>,
    /// Whether the last start tag still lacks its `>`.
    in_tag: bool,
}

impl Xml {
    pub(super) fn new() -> Xml {
        let out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        Xml { out, open: Vec::new(), in_tag: false }
    }

    /// Opens an element; its attributes must follow directly.
    pub(super) fn begin(&mut self, tag: &'static str) -> &mut Self {
        self.close_tag(">\n");
        self.indent();
        let _ = write!(self.out, "<{tag}");
        self.open.push(tag);
        self.in_tag = true;
        self
    }

    /// Writes an attribute of the element just opened.
    pub(super) fn attr(&mut self, name: &str, value: impl fmt::Display) -> &mut Self {
        debug_assert!(self.in_tag, "an attribute needs an open tag");
        let _ = write!(self.out, " {name}=\"");
        let _ = write!(Escaped(&mut self.out), "{value}");
        self.out.push('"');
        self
    }

    /// Writes an element that contains only text.
    pub(super) fn leaf(&mut self, tag: &'static str, text: impl fmt::Display) -> &mut Self {
        self.close_tag(">\n");
        self.indent();
        let _ = write!(self.out, "<{tag}>");
        let _ = write!(Escaped(&mut self.out), "{text}");
        let _ = writeln!(self.out, "</{tag}>");
        self
    }

    /// Closes the innermost element.
    pub(super) fn end(&mut self) -> &mut Self {
        let tag = self.open.pop().expect("every `end` matches a `begin`");
        if self.in_tag {
            self.close_tag("/>\n");
        } else {
            self.indent();
            let _ = writeln!(self.out, "</{tag}>");
        }
        self
    }

    /// Returns the document. Every element must be closed.
    pub(super) fn finish(self) -> String {
        debug_assert!(self.open.is_empty(), "unclosed elements: {:?}", self.open);
        self.out
    }

    fn close_tag(&mut self, with: &str) {
        if self.in_tag {
            self.out.push_str(with);
            self.in_tag = false;
        }
    }

    fn indent(&mut self) {
        for _ in &self.open {
            self.out.push_str("  ");
        }
    }
}

/// Escapes values (XML 1.0 §2.3); characters forbidden by §2.2 become U+FFFD.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for c in s.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\t' | '\n' | '\r' => write!(self.0, "&#{};", u32::from(c))?,
                '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Xml;
    use expect_test::expect;

    #[test]
    fn values_are_escaped_and_elements_nest() {
        let mut xml = Xml::new();
        xml.begin("A").attr("x", "\"<&>'\n\u{1}é").begin("B").end().begin("C").attr("n", 7).end().end();
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <A x="&quot;&lt;&amp;&gt;'&#10;�é">
              <B/>
              <C n="7"/>
            </A>
        "#]]
        .assert_eq(&xml.finish());
    }
}
