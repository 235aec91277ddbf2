//! Golden dumps of what the lexer and the parser make of a file that has each token and each node once: one line for
//! each, with where it stands, so that a change of either is seen.

use std::fmt::Write as _;

use expect_test::expect_file;

use crate::ast::{
    AclEntry, Argument, Block, Declaration, Expression, ExpressionKind, Field, FieldValue, Statement,
    StatementKind,
};
use crate::fault::Faults;
use crate::lex::{Kind, lex};
use crate::parse::parse;
use crate::source::{File, Sources, Span};

const TEXT: &str = include_str!("../tests/golden/all.vcl");

fn file() -> File {
    File { name: "all.vcl".to_owned(), text: TEXT.to_owned() }
}

#[test]
fn tokens() {
    let (mut sources, mut faults, mut dump) = (Sources::default(), Faults::default(), String::new());
    let file = sources.add(file());
    for token in lex(TEXT, file, &mut faults) {
        let place = sources.place(token.span);
        let shown = match &token.kind {
            Kind::Name(name) => format!("name     {name}"),
            Kind::Int(value) => format!("int      {value}"),
            Kind::Real(value) => format!("real     {value}"),
            Kind::Duration(seconds) => format!("duration {seconds} s"),
            Kind::Bytes(bytes) => format!("bytes    {bytes} B"),
            Kind::Text(text) => format!("text     {text:?}"),
            Kind::Blob(bytes) => format!("blob     {bytes:?}"),
            Kind::Symbol(symbol) => format!("symbol   {symbol}"),
            Kind::End => "end".to_owned(),
        };
        let length = token.span.end - token.span.start;
        writeln!(dump, "{:>2}:{:<3} {length:>2} {shown}", place.line, place.column).expect("a String grows");
    }
    assert!(!faults.has_errors(), "{}", faults.report(&sources));
    expect_file!["../tests/golden/all.tokens.txt"].assert_eq(&dump);
}

#[test]
fn tree() {
    let (mut sources, mut faults) = (Sources::default(), Faults::default());
    let items = parse(file(), &mut sources, &mut |path, _| Err(path.to_owned()), &mut faults);
    let mut tree = Tree { sources: &sources, depth: 0, text: String::new() };
    for item in &items {
        tree.declaration(&item.declaration);
    }
    let text = tree.text;
    assert!(!faults.has_errors(), "{}", faults.report(&sources));
    expect_file!["../tests/golden/all.tree.txt"].assert_eq(&text);
}

/// The tree as lines, each as deep as its node.
struct Tree<'s> {
    sources: &'s Sources,
    depth: usize,
    text: String,
}

impl Tree<'_> {
    fn line(&mut self, span: Span, node: &str) {
        let (place, indent) = (self.sources.place(span), self.depth * 2);
        writeln!(self.text, "{:indent$}{node} [{}:{}]", "", place.line, place.column)
            .expect("a String grows");
    }

    fn within(&mut self, children: impl FnOnce(&mut Self)) {
        self.depth += 1;
        children(self);
        self.depth -= 1;
    }

    fn declaration(&mut self, declaration: &Declaration) {
        match declaration {
            Declaration::Import { module, alias } => {
                let alias = alias.as_ref().map(|alias| format!(" as {}", alias.text)).unwrap_or_default();
                self.line(module.span, &format!("import {}{alias}", module.text));
            }
            Declaration::Backend { name, fields, .. } => {
                let none = if fields.is_none() { " none" } else { "" };
                self.line(name.span, &format!("backend {}{none}", name.text));
                self.within(|tree| tree.fields(fields.as_deref().unwrap_or_default()));
            }
            Declaration::Probe { name, fields } => {
                self.line(name.span, &format!("probe {}", name.text));
                self.within(|tree| tree.fields(fields));
            }
            Declaration::Acl { name, flags, entries } => {
                let flag = |set: bool| if set { '+' } else { '-' };
                let flags = flags.iter().map(|it| format!(" {}{}", flag(it.is_set), it.name.text));
                self.line(name.span, &format!("acl {}{}", name.text, flags.collect::<String>()));
                self.within(|tree| entries.iter().for_each(|entry| tree.acl_entry(entry)));
            }
            Declaration::Sub { name, body } => {
                self.line(name.span, &format!("sub {}", name.text));
                self.block(body);
            }
        }
    }

    fn acl_entry(&mut self, entry: &AclEntry) {
        let prefix = entry.prefix_bits.map(|bits| format!("/{bits}")).unwrap_or_default();
        let negated = if entry.is_negated { "not " } else { "" };
        let optional = if entry.is_optional { " optional" } else { "" };
        self.line(entry.span, &format!("{negated}{:?}{prefix}{optional}", entry.address));
    }

    fn fields(&mut self, fields: &[Field]) {
        for Field { name, value, .. } in fields {
            let shown = match value {
                FieldValue::Texts(texts) => format!("{texts:?}"),
                FieldValue::Int(value) => format!("int {value}"),
                FieldValue::Real(value) => format!("real {value}"),
                FieldValue::Duration(seconds) => format!("duration {seconds} s"),
                FieldValue::Blob(bytes) => format!("blob {bytes:?}"),
                FieldValue::Name(name) => format!("name {name}"),
                FieldValue::Probe(_) => "probe".to_owned(),
            };
            self.line(name.span, &format!(".{} {shown}", name.text));
            if let FieldValue::Probe(fields) = value {
                self.within(|tree| tree.fields(fields));
            }
        }
    }

    fn block(&mut self, block: &Block) {
        self.within(|tree| block.iter().for_each(|statement| tree.statement(statement)));
    }

    fn statement(&mut self, Statement { kind, span }: &Statement) {
        match kind {
            StatementKind::Set { variable, operator, value } => {
                let operator = operator.map_or("", crate::ast::Operator::as_str);
                self.line(*span, &format!("set {} {operator}=", variable.text));
                self.within(|tree| tree.expression(value));
            }
            StatementKind::Unset(variable) => self.line(*span, &format!("unset {}", variable.text)),
            StatementKind::Call(sub) => self.line(*span, &format!("call {}", sub.text)),
            StatementKind::Return(None) => self.line(*span, "return"),
            StatementKind::Return(Some((action, arguments))) => {
                self.line(*span, &format!("return {}", action.text));
                self.arguments(arguments);
            }
            StatementKind::If { arms, otherwise } => {
                for (at, (condition, block)) in arms.iter().enumerate() {
                    self.line(condition.span, if at == 0 { "if" } else { "elseif" });
                    self.within(|tree| tree.expression(condition));
                    self.line(*span, "then");
                    self.block(block);
                }
                self.line(*span, "else");
                self.block(otherwise);
            }
            StatementKind::New { name, class, arguments } => {
                self.line(*span, &format!("new {} = {}", name.text, class.text));
                self.arguments(arguments);
            }
            StatementKind::Do(expression) => {
                self.line(*span, "do");
                self.within(|tree| tree.expression(expression));
            }
            StatementKind::Block(block) => {
                self.line(*span, "block");
                self.block(block);
            }
        }
    }

    fn arguments(&mut self, arguments: &[Argument]) {
        self.within(|tree| {
            for Argument { name, value } in arguments {
                match name {
                    Some(name) => {
                        tree.line(name.span, &format!("{} =", name.text));
                        tree.within(|tree| tree.expression(value));
                    }
                    None => tree.expression(value),
                }
            }
        });
    }

    fn expression(&mut self, Expression { kind, span }: &Expression) {
        let shown = match kind {
            ExpressionKind::Text(text) => format!("text {text:?}"),
            ExpressionKind::Int(value) => format!("int {value}"),
            ExpressionKind::Real(value) => format!("real {value}"),
            ExpressionKind::Duration(seconds) => format!("duration {seconds} s"),
            ExpressionKind::Bytes(bytes) => format!("bytes {bytes} B"),
            ExpressionKind::Blob(bytes) => format!("blob {bytes:?}"),
            ExpressionKind::Name(name) => format!("name {name}"),
            ExpressionKind::Call { name, .. } => format!("call {}", name.text),
            ExpressionKind::Method { name, .. } => format!("method {}", name.text),
            ExpressionKind::Not(_) => "not".to_owned(),
            ExpressionKind::Minus(_) => "minus".to_owned(),
            ExpressionKind::Binary { operator, .. } => operator.as_str().to_owned(),
        };
        self.line(*span, &shown);
        match kind {
            ExpressionKind::Call { arguments, .. } => self.arguments(arguments),
            ExpressionKind::Method { of, arguments, .. } => {
                self.within(|tree| tree.expression(of));
                self.arguments(arguments);
            }
            ExpressionKind::Not(inner) | ExpressionKind::Minus(inner) => {
                self.within(|tree| tree.expression(inner));
            }
            ExpressionKind::Binary { left, right, .. } => self.within(|tree| {
                tree.expression(left);
                tree.expression(right);
            }),
            _ => {}
        }
    }
}
