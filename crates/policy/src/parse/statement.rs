//! Parses blocks and statements.

use thalweg_units::nearest;

use super::{Parsed, Parser, Stopped};
use crate::ast::{Argument, Block, Expression, ExpressionKind, Operator, Statement, StatementKind};
use crate::idioms::{Place, advice};
use crate::lex::Kind;

/// Keywords that start a statement.
pub(super) const STATEMENTS: [&str; 12] =
    ["set", "unset", "call", "return", "if", "new", "include", "else", "elseif", "elsif", "elif", "import"];
/// Keywords that continue an `if`.
pub(super) const ELSES: [&str; 4] = ["else", "elseif", "elsif", "elif"];
/// Built-in functions that are statements.
pub(crate) const STATEMENT_FUNCTIONS: [&str; 3] = ["ban", "hash_data", "synthetic"];

impl Parser<'_, '_> {
    /// Parses `{ … }`.
    pub(super) fn block(&mut self) -> Parsed<Block> {
        self.symbol("{")?;
        self.deeper(|parser| {
            let mut block = Vec::new();
            parser.statements(&mut block);
            Ok(block)
        })
        .inspect(|_| {
            // Keep the block even if its closing brace is missing, so that its statements are still
            // checked.
            let _ = self.symbol("}");
        })
    }

    /// Parses statements up to a `}` or the end of the file.
    fn statements(&mut self, into: &mut Block) {
        while !self.at_symbol("}") && !self.at_end() {
            let before = self.at;
            // A declaration inside a block means that a closing brace is missing.
            if self.at_word("sub") && before > 0 {
                return;
            }
            match self.statement() {
                Ok(statement) => into.push(statement),
                Err(Stopped) => self.recover(),
            }
            if self.at == before && !self.at_symbol("}") && !self.at_end() {
                self.next();
            }
        }
    }

    /// Parses one statement.
    fn statement(&mut self) -> Parsed<Statement> {
        let start = self.span();
        self.operators = 0;
        if self.at_symbol("{") {
            let block = self.block()?;
            return Ok(Statement { kind: StatementKind::Block(block), span: start });
        }
        let Kind::Name(word) = self.kind().clone() else {
            return Err(self.expected("a statement"));
        };
        let kind = match word.as_str() {
            "include" => {
                let mut block = Vec::new();
                self.include(&mut |parser| parser.statements_to_end(&mut block))?;
                StatementKind::Block(block)
            }
            "set" => self.set()?,
            "unset" => {
                self.next();
                let name = self.name("a variable")?;
                self.symbol(";")?;
                StatementKind::Unset(name)
            }
            "call" => {
                self.next();
                let name = self.name("a subroutine")?;
                self.symbol(";")?;
                StatementKind::Call(name)
            }
            "return" => self.returning()?,
            "if" => return self.branch(),
            "new" => self.new_object()?,
            word if ELSES.contains(&word) => {
                self.faults.error(start, format!("{word} without a preceding if"));
                return Err(Stopped);
            }
            _ => {
                let expression = self.postfix()?;
                let is_name = matches!(expression.kind, crate::ast::ExpressionKind::Name(_));
                // `synthetic` and similar names are functions if parentheses follow.
                let is_call = !is_name && STATEMENT_FUNCTIONS.contains(&word.as_str());
                if let Some(help) = advice(Place::Statement, &word).filter(|_| !is_call) {
                    self.faults.error_help(start, format!("{word} is not a statement"), help);
                    return Err(Stopped);
                }
                if !self.at_symbol(";") && is_name {
                    let help = match nearest(&word, STATEMENTS) {
                        Some(near) => format!("did you mean {near}?"),
                        None => {
                            "statements are set, unset, call, return, if, new and function calls".to_owned()
                        }
                    };
                    self.faults.error_help(start, format!("{word} does not start a statement"), help);
                    return Err(Stopped);
                }
                self.symbol(";")?;
                StatementKind::Do(expression)
            }
        };
        let span = start.to(self.span_before());
        Ok(Statement { kind, span })
    }

    /// Parses the statements of a file included in a block.
    fn statements_to_end(&mut self, into: &mut Block) {
        self.statements(into);
        if !self.at_end() {
            self.expected("a statement");
        }
    }

    fn set(&mut self) -> Parsed<StatementKind> {
        self.next();
        let variable = self.name("a variable")?;
        if self.at_symbol(":") {
            self.faults.error_help(self.span(), "unexpected colon after the variable", "remove the colon");
            self.next();
        }
        let operator = match self.kind() {
            Kind::Symbol("=") => None,
            Kind::Symbol("+=") => Some(Operator::Add),
            Kind::Symbol("-=") => Some(Operator::Subtract),
            Kind::Symbol("*=") => Some(Operator::Multiply),
            Kind::Symbol("/=") => Some(Operator::Divide),
            _ => return Err(self.expected("=, +=, -=, *= or /=")),
        };
        self.next();
        let value = self.expression()?;
        self.symbol(";")?;
        Ok(StatementKind::Set { variable, operator, value })
    }

    fn returning(&mut self) -> Parsed<StatementKind> {
        self.next();
        if self.take_symbol(";") {
            return Ok(StatementKind::Return(None));
        }
        let bracketed = self.take_symbol("(");
        if !bracketed {
            return Err(self.expected("(ACTION)"));
        }
        let action = self.name("an action")?;
        let arguments = if self.at_symbol("(") { self.arguments()? } else { Vec::new() };
        self.symbol(")")?;
        self.symbol(";")?;
        Ok(StatementKind::Return(Some((action, arguments))))
    }

    fn condition(&mut self) -> Parsed<Expression> {
        self.symbol("(")?;
        let condition = self.expression()?;
        self.symbol(")")?;
        Ok(condition)
    }

    fn branch(&mut self) -> Parsed<Statement> {
        let span = self.next().span;
        let mut arms = vec![self.arm()?];
        let mut otherwise = Vec::new();
        loop {
            if self.at_word("elseif") || self.at_word("elsif") || self.at_word("elif") {
                self.next();
            } else if self.at_word("else") {
                self.next();
                if !self.at_word("if") {
                    otherwise = self.block()?;
                    break;
                }
                self.next();
            } else {
                break;
            }
            arms.push(self.arm()?);
        }
        Ok(Statement { kind: StatementKind::If { arms, otherwise }, span })
    }

    /// Parses a condition and its block. The block is checked even if the condition is invalid.
    fn arm(&mut self) -> Parsed<(Expression, Block)> {
        let span = self.span();
        let condition = self.condition().or_else(|stopped| {
            while !["{", "}", ";"].iter().any(|end| self.at_symbol(end)) && !self.at_end() {
                self.next();
            }
            let unread = Expression { kind: ExpressionKind::Name("true".to_owned()), span };
            if self.at_symbol("{") { Ok(unread) } else { Err(stopped) }
        });
        Ok((condition?, self.block()?))
    }

    fn new_object(&mut self) -> Parsed<StatementKind> {
        self.next();
        let name = self.name("the object's name")?;
        self.symbol("=")?;
        let class = self.name("a module's class, such as directors.round_robin")?;
        let arguments = self.arguments()?;
        self.symbol(";")?;
        Ok(StatementKind::New { name, class, arguments })
    }

    /// Parses call arguments: `(a, name = b)`.
    pub(super) fn arguments(&mut self) -> Parsed<Vec<Argument>> {
        self.symbol("(")?;
        let mut arguments = Vec::new();
        if self.take_symbol(")") {
            return Ok(arguments);
        }
        loop {
            let named = matches!(self.kind(), Kind::Name(_))
                && matches!(self.tokens.get(self.at + 1).map(|token| &token.kind), Some(Kind::Symbol("=")));
            let mut name = None;
            if named {
                name = Some(self.name("an argument's name")?);
                self.next();
            }
            arguments.push(Argument { name, value: self.expression()? });
            if self.take_symbol(")") {
                return Ok(arguments);
            }
            if !self.take_symbol(",") {
                return Err(self.expected(", or )"));
            }
        }
    }

    /// Returns whether `word` starts another statement.
    pub(super) fn begins_statement(word: &str) -> bool {
        STATEMENTS.contains(&word)
    }
}
