//! Parses declarations: version, import, include, backend, probe, acl, sub.

use super::{Item, Parsed, Parser, Stopped, Version};
use crate::ast::{AclEntry, Declaration, Field, FieldValue, Flag};
use crate::idioms::{Place, advice, help};
use crate::lex::{Kind, Token};

const DECLARATIONS: [&str; 7] = ["vcl", "import", "include", "backend", "probe", "acl", "sub"];

impl Parser<'_, '_> {
    pub(super) fn declarations(&mut self) {
        while !self.at_end() {
            let before = self.at;
            if self.declaration().is_err() {
                self.recover_declaration();
            }
            if self.at == before && !self.at_end() {
                self.next();
            }
        }
    }

    /// Skips to the next keyword that starts a declaration outside of blocks.
    pub(super) fn recover_declaration(&mut self) {
        let mut depth = 0_usize;
        while !self.at_end() {
            if self.at_symbol("{") {
                depth += 1;
            } else if self.at_symbol("}") {
                depth = depth.saturating_sub(1);
            } else if let Kind::Name(word) = self.kind()
                && (DECLARATIONS.contains(&word.as_str()) || advice(Place::Declaration, word).is_some())
                // These words cannot occur within a block, so they start a declaration even if a
                // brace is missing.
                && (depth == 0 || matches!(word.as_str(), "sub" | "acl" | "import"))
            {
                return;
            }
            self.next();
        }
    }

    fn declaration(&mut self) -> Parsed<()> {
        let span = self.span();
        let Kind::Name(word) = self.kind().clone() else {
            return Err(self.expected("a declaration"));
        };
        let declaration = match word.as_str() {
            "vcl" => return self.version(),
            "include" => return self.include(&mut |parser| parser.declarations()),
            "import" => self.import()?,
            "backend" => self.backend()?,
            "probe" => {
                self.next();
                let name = self.name("the probe's name")?;
                Declaration::Probe { name, fields: self.fields()? }
            }
            "acl" => self.acl()?,
            "sub" => {
                self.next();
                let name = self.name("the subroutine's name")?;
                Declaration::Sub { name, body: self.block()? }
            }
            other => {
                let help = help(Place::Declaration, other, DECLARATIONS);
                self.faults.error_help(span, format!("{other} does not start a declaration"), help);
                self.next();
                return Err(Stopped);
            }
        };
        self.items.push(Item { version: self.version, declaration });
        Ok(())
    }

    pub(super) fn version(&mut self) -> Parsed<()> {
        self.next();
        let span = self.span();
        let Token { kind: Kind::Real(_), .. } = self.next() else {
            self.at -= usize::from(!self.at_end());
            return Err(self.expected("the version, 4.0 or 4.1"));
        };
        let version = match self.sources.text(span) {
            "4.0" => Version::V40,
            "4.1" => Version::V41,
            other => {
                self.faults.error_help(span, format!("unknown version {other}"), "allowed here: 4.0, 4.1");
                Version::V41
            }
        };
        if version > self.version_max {
            self.faults.error(span, "cannot include a file with a later version");
        }
        self.version = version;
        self.symbol(";")
    }

    fn import(&mut self) -> Parsed<Declaration> {
        self.next();
        let module = self.name("the module's name")?;
        let mut alias = None;
        if self.at_word("as") {
            self.next();
            alias = Some(self.name("the module's name here")?);
        }
        if self.at_word("from") {
            self.next();
            let span = self.span();
            self.text("the module's path in quotes")?;
            let help = Some("modules are built in".to_owned());
            self.faults.warning(span, "from is ignored", help);
        }
        self.symbol(";")?;
        Ok(Declaration::Import { module, alias })
    }

    fn backend(&mut self) -> Parsed<Declaration> {
        self.next();
        let name = self.name("the backend's name")?;
        if self.at_word("none") || self.at_word("None") {
            self.next();
            self.symbol(";")?;
            return Ok(Declaration::Backend { name, fields: None, end: self.span_before() });
        }
        let fields = Some(self.fields()?);
        Ok(Declaration::Backend { name, fields, end: self.span_before() })
    }

    fn fields(&mut self) -> Parsed<Vec<Field>> {
        self.list(Self::field)
    }

    /// Parses a list in braces, calling `read` for each item.
    fn list<T>(&mut self, read: fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.symbol("{")?;
        let mut list = Vec::new();
        while !self.at_symbol("}") && !self.at_end() {
            match read(self) {
                Ok(one) => list.push(one),
                Err(Stopped) => self.recover(),
            }
        }
        self.symbol("}")?;
        Ok(list)
    }

    fn field(&mut self) -> Parsed<Field> {
        if !self.take_symbol(".") {
            return Err(self.expected("an attribute, such as .host"));
        }
        let name = self.name("the attribute's name")?;
        self.symbol("=")?;
        let value_span = self.span();
        let value = self.field_value()?;
        let value_span = value_span.to(self.span_before());
        if !matches!(value, FieldValue::Probe(_)) || self.at_symbol(";") {
            self.symbol(";")?;
        }
        Ok(Field { name, value, value_span })
    }

    fn field_value(&mut self) -> Parsed<FieldValue> {
        if self.at_symbol("{") {
            return self.deeper(Self::fields).map(FieldValue::Probe);
        }
        if matches!(self.kind(), Kind::Text(_)) {
            let mut texts = Vec::new();
            while let Kind::Text(text) = self.kind() {
                texts.push(text.clone());
                self.next();
            }
            return Ok(FieldValue::Texts(texts));
        }
        let value = match self.kind().clone() {
            Kind::Int(value) => FieldValue::Int(value),
            Kind::Real(value) => FieldValue::Real(value),
            Kind::Duration(value) => FieldValue::Duration(value),
            Kind::Blob(value) => FieldValue::Blob(value),
            Kind::Name(value) => FieldValue::Name(value),
            _ => return Err(self.expected("a value")),
        };
        self.next();
        Ok(value)
    }

    fn acl(&mut self) -> Parsed<Declaration> {
        self.next();
        let name = self.name("the acl's name")?;
        let mut flags = Vec::new();
        while self.at_symbol("+") || self.at_symbol("-") {
            let is_set = self.at_symbol("+");
            self.next();
            flags.push(Flag { is_set, name: self.name("a flag")? });
        }
        let entries = self.list(Self::acl_entry)?;
        Ok(Declaration::Acl { name, flags, entries })
    }

    fn acl_entry(&mut self) -> Parsed<AclEntry> {
        let start = self.span();
        let mut is_negated = self.take_symbol("!");
        let is_optional = self.take_symbol("(");
        is_negated |= self.take_symbol("!");
        let address = self.text("an address in quotes")?;
        let mut prefix_bits = None;
        // Varnish accepts the mask inside and after the parentheses.
        let mut closed = !is_optional;
        for _ in 0..2 {
            if self.take_symbol("/") {
                match self.next().kind {
                    Kind::Int(bits) => prefix_bits = Some(bits),
                    _ => {
                        self.at -= 1;
                        return Err(self.expected("the prefix length"));
                    }
                }
            }
            if !closed {
                self.symbol(")")?;
                closed = true;
            }
        }
        let span = start.to(self.span_before());
        self.symbol(";")?;
        Ok(AclEntry { is_negated, is_optional, address, prefix_bits, span })
    }
}
