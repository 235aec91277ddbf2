//! Checks statements.

use super::{Checker, Symbol, Use};
use crate::ast::{self, Argument, Declaration, ExpressionKind, Name, Operator, StatementKind};
use crate::fault::suggest;
use crate::idioms::{Place, advice, help};
use crate::message::Header;
use crate::parse::{Item, STATEMENT_FUNCTIONS};
use crate::program::{Expression, Operation, Rest, Statement};
use crate::source::Span;
use crate::step::{Sub, Subs};
use crate::types::Type;
use crate::value::Value;
use crate::variables::{self, Variable};

impl Checker<'_> {
    /// Checks the bodies of all subroutines. Multiple definitions of a subroutine are concatenated.
    pub(super) fn bodies(&mut self, items: &[Item]) {
        for item in items {
            let Declaration::Sub { name, body } = &item.declaration else { continue };
            let Some((Symbol::Sub(index), _)) = self.symbols.get(&name.text) else { continue };
            self.current = *index as usize;
            self.version = item.version;
            let statements = self.block(body);
            self.program.subs[self.current].body.extend(statements);
        }
    }

    /// Records a use of the construct `what`, which is allowed only in the subroutines `allowed`.
    pub(super) fn used_in(&mut self, span: Span, allowed: Subs, what: impl Into<String>) {
        if allowed != Subs::ALL {
            let what = what.into();
            self.routines[self.current].uses.push(Use { span, allowed, what, advice: None });
        }
    }

    fn block(&mut self, block: &[ast::Statement]) -> Vec<Statement> {
        let lower =
            |statement| Some(Statement { span: span_of(statement), operation: self.statement(statement)? });
        block.iter().filter_map(lower).collect()
    }

    /// Checks one statement; returns `None` after a fault.
    fn statement(&mut self, statement: &ast::Statement) -> Option<Operation> {
        match &statement.kind {
            StatementKind::Set { variable, operator, value } => self.set(variable, *operator, value),
            StatementKind::Unset(variable) => self.unset(variable),
            StatementKind::Call(name) => self.call(name),
            StatementKind::Return(None) => self.leave(statement.span),
            StatementKind::Return(Some((action, arguments))) => self.returns(action, arguments),
            StatementKind::If { arms, otherwise } => self.branches(arms, otherwise),
            StatementKind::New { name, class, arguments } => self.new_object(name, class, arguments),
            StatementKind::Do(expression) => self.action(expression),
            StatementKind::Block(block) => Some(Operation::Block(self.block(block))),
        }
    }

    fn branches(
        &mut self,
        arms: &[(ast::Expression, Vec<ast::Statement>)],
        otherwise: &[ast::Statement],
    ) -> Option<Operation> {
        let mut lowered = Vec::new();
        for (condition, block) in arms {
            // Check every arm, even after a fault in an earlier arm.
            let condition = self.expression(condition, Type::Bool);
            let block = self.block(block);
            lowered.extend(condition.map(|condition| (condition, block)));
        }
        let otherwise = self.block(otherwise);
        let mut lowered = lowered.into_iter();
        let (condition, then) = lowered.next()?;
        let arms: Vec<_> = lowered.collect();
        let is_more = !arms.is_empty() || !otherwise.is_empty();
        Some(Operation::If { condition, then, rest: is_more.then(|| Box::new(Rest { arms, otherwise })) })
    }

    /// Finds the variable called `name`. For a pattern, also returns the part of `name` matched by
    /// `*`.
    pub(super) fn variable<'n>(&mut self, name: &'n str, span: Span) -> Option<(&'static Variable, &'n str)> {
        if let Some((variable, part)) = variables::find(name, self.version) {
            if variable.message.is_some_and(|message| Header::new(message, part).is_none()) {
                return self.faults.refuse(span, format!("{part:?} is not a header name"));
            }
            self.warn_of_geo(variable, span);
            return Some((variable, part));
        }
        self.unknown_variable(name, span);
        None
    }

    pub(super) fn unknown_variable(&mut self, name: &str, span: Span) {
        let elsewhere = variables::all().find(|variable| variable.name == name).and_then(Variable::version);
        let message = format!("unknown variable {name}");
        if let Some(version) = elsewhere {
            self.faults.error_help(span, message, format!("it exists only in VCL {version}"));
            return;
        }
        if let Some(help) = advice(Place::Name, name) {
            self.faults.error_help(span, message, help);
            return;
        }
        if let Some((before, field)) = name.split_once(".http").filter(|(_, field)| field.len() < 2) {
            let help = format!("a header needs a name: {before}.http.NAME{}", field.replace('.', ""));
            self.faults.error_help(span, message, help);
            return;
        }
        let version = self.version;
        let known = variables::all().filter(|variable| variable.is_in(version)).map(|variable| variable.name);
        let near = thalweg_units::nearest(name, known);
        // List the variables in the innermost part of the dotted name that is a known scope.
        let mut scopes = name.match_indices('.').rev().map(|(dot, _)| &name[..=dot]);
        let in_scope = |scope: &&str| variables::all().any(|known| known.name.starts_with(*scope));
        let names = variables::all().map(|variable| variable.name);
        let help = match (near, scopes.find(in_scope)) {
            (Some(near), _) => format!("did you mean {near}?"),
            (None, Some(scope)) => crate::fault::allowed(names.filter(|known| known.starts_with(scope))),
            (None, None) => "see docs/reference/policy-variables.md".to_owned(),
        };
        self.faults.error_help(span, message, help);
    }

    fn warn_of_geo(&mut self, variable: &Variable, span: Span) {
        let is_geo = ["client.geo.", "client.as."].iter().any(|scope| variable.name.starts_with(scope));
        if is_geo && self.known.has_geo == Some(false) {
            let help = Some("set geoip to a MaxMind database in the edge's settings".to_owned());
            let always = if variable.kind.is_text() { "unset" } else { "0" };
            let message = format!("{} is always {always}: no database is configured", variable.name);
            self.faults.warning(span, message, help);
        }
    }

    fn set(&mut self, name: &Name, operator: Option<Operator>, value: &ast::Expression) -> Option<Operation> {
        let Some((variable, part)) = self.variable(&name.text, name.span) else {
            // Check the value anyway, because it may have faults of its own.
            self.infer(value, None);
            return None;
        };
        let allowed = variable.set_in(self.version);
        if allowed.is_empty() {
            let help = match advice(Place::Name, &name.text) {
                Some(advice) => advice,
                None if variable.is_in(self.version) && !variable.read.is_empty() => "it is read-only",
                None => "it can only be unset",
            };
            return self.faults.refuse_help(name.span, format!("{} cannot be set", name.text), help);
        }
        self.used_in(name.span, allowed, format!("{} cannot be set", name.text));
        let span = value.span;
        let value = match operator {
            None if variable.message.is_some() => self.expression(value, Type::String)?,
            None => self.expression(value, variable.kind)?,
            Some(operator) => self.changed(variable, part, name.span, operator, value)?,
        };
        self.warn_of_algorithm(variable.name, &value, name.span);
        self.check_socket(variable.name, &value, name.span, span);
        if matches!(variable.name, "beresp.status" | "resp.status") {
            self.check_status(&value, span);
        }
        Some(match variable.message {
            Some(message) => Operation::SetHeader { header: Header::new(message, part)?, value },
            None => Operation::Set { variable, value },
        })
    }

    /// Returns the value that a compound assignment such as `variable += value` assigns.
    fn changed(
        &mut self,
        variable: &'static Variable,
        part: &str,
        span: Span,
        operator: Operator,
        value: &ast::Expression,
    ) -> Option<Expression> {
        let now = match variable.message {
            Some(message) => Expression::Field(Header::new(message, part)?),
            None => Expression::Variable(variable),
        };
        let kind = if variable.message.is_some() { Type::String } else { variable.kind };
        if (kind.is_text() || kind == Type::Body) && operator == Operator::Add {
            let added = self.expression(value, Type::String)?;
            return Some(Expression::Concat(vec![now, added]));
        }
        let right = self.infer(value, Some(kind))?;
        let (expression, result) = self.arithmetic(operator, span.to(value.span), (now, kind), right)?;
        self.convert(expression, result, kind, value.span)
    }

    /// Warns about a congestion control algorithm that is not available in the kernel.
    pub(super) fn warn_of_algorithm(&mut self, variable: &str, value: &Expression, span: Span) {
        if variable != "client.socket.congestion_algorithm" {
            return;
        }
        if let Expression::Constant(Value::Text(Some(name))) = value
            && let Some(known) = &self.known.congestion_algorithms
        {
            let name = String::from_utf8_lossy(name);
            if !known.iter().any(|known| *known == name) {
                let help = crate::fault::allowed(known.iter().map(String::as_str));
                let message = format!("congestion control algorithm {name:?} is not available");
                self.faults.warning(
                    span,
                    message,
                    Some(format!("{help}; requests continue with the default")),
                );
            }
        }
    }

    /// Checks socket settings as far as possible at compile time.
    fn check_socket(&mut self, variable: &str, value: &Expression, name_span: Span, span: Span) {
        match (variable, value) {
            ("client.socket.cwnd", _) => {
                let help =
                    "Linux does not allow it; set the initial window with initcwnd on a route".to_owned();
                let message = "client.socket.cwnd cannot be set: each request logs a VCL_Error";
                self.faults.warning(name_span, message, Some(help));
            }
            ("client.socket.pace", Expression::Constant(Value::Int(kb_per_s))) if *kb_per_s < 0 => {
                self.faults.error_help(span, "a pace cannot be negative", "use 0 for no limit");
            }
            _ => {}
        }
    }

    fn unset(&mut self, name: &Name) -> Option<Operation> {
        let (variable, part) = self.variable(&name.text, name.span)?;
        if variable.unset.is_empty() {
            let help = "only headers and bereq.body can be unset";
            return self.faults.refuse_help(name.span, format!("{} cannot be unset", name.text), help);
        }
        self.used_in(name.span, variable.unset, format!("{} cannot be unset", name.text));
        Some(match variable.message {
            Some(message) => Operation::UnsetHeader(Header::new(message, part)?),
            None => Operation::Unset(variable),
        })
    }

    fn call(&mut self, name: &Name) -> Option<Operation> {
        let Some((Symbol::Sub(callee), _)) = self.symbols.get(&name.text) else {
            let subs = self.program.subs.iter().map(|sub| sub.name.as_str());
            let help = suggest(&name.text, subs.filter(|sub| !sub.starts_with("vcl_")).collect::<Vec<_>>());
            return self.faults.refuse_help(name.span, format!("unknown subroutine {}", name.text), help);
        };
        let callee = *callee;
        if Sub::named(&name.text).is_some() && name.span.file < self.builtin_file {
            let help = format!("the edge calls {}; move the shared code to another subroutine", name.text);
            return self.faults.refuse_help(name.span, format!("{} cannot be called", name.text), help);
        }
        self.routines[self.current].calls.push((callee, name.span));
        Some(Operation::Call(callee))
    }

    fn new_object(&mut self, name: &Name, class: &Name, arguments: &[Argument]) -> Option<Operation> {
        self.used_in(name.span, Subs::of(&[Sub::Init]), "new is not allowed");
        let Some((Symbol::Object(object), _)) = self.symbols.get(&name.text) else {
            if Sub::named(&self.program.subs[self.current].name) != Some(Sub::Init) {
                let help = "create objects directly in vcl_init";
                self.faults.error_help(class.span, "new is not allowed here", help);
            }
            return None;
        };
        let object = *object;
        let class = self.program.objects[object as usize].class;
        let arguments = self.arguments(class.name, class.arguments, arguments, name.span)?;
        Some(Operation::New { object, arguments })
    }

    /// Checks a function call used as a statement.
    fn action(&mut self, expression: &ast::Expression) -> Option<Operation> {
        let ExpressionKind::Call { name, arguments } = &expression.kind else {
            let help = "statements are set, unset, call, return, if, new and function calls";
            return self.faults.refuse_help(expression.span, "a value alone has no effect", help);
        };
        match name.text.as_str() {
            "hash_data" | "synthetic" | "ban" => self.statement_function(name, arguments),
            "regsub" | "regsuball" => {
                let help = format!("write set req.url = {}(…);", name.text);
                self.faults.refuse_help(name.span, format!("the result of {} is not used", name.text), help)
            }
            other if !other.contains('.') => {
                let known = STATEMENT_FUNCTIONS.into_iter().chain(["set", "unset", "call", "return", "if"]);
                let help = help(Place::Name, other, known);
                self.faults.refuse_help(name.span, format!("unknown function {other}"), help)
            }
            _ => self.infer(expression, Some(Type::Void)).map(|(expression, _)| Operation::Do(expression)),
        }
    }

    fn statement_function(&mut self, name: &Name, arguments: &[Argument]) -> Option<Operation> {
        let [argument] = arguments else {
            return self.faults.refuse(name.span, format!("{} takes one argument", name.text));
        };
        let value = self.expression(&argument.value, Type::String)?;
        let what = format!("{} is not allowed", name.text);
        Some(match name.text.as_str() {
            "hash_data" => {
                self.used_in(name.span, Subs::of(&[Sub::Hash]), what);
                Operation::HashData(value)
            }
            "ban" => {
                self.used_in(name.span, Subs::REQUEST, what);
                Operation::Ban(value)
            }
            _ => {
                self.used_in(name.span, Subs::of(&[Sub::Synth, Sub::BackendError]), what);
                Operation::Synthetic(value)
            }
        })
    }

    /// Returns the header called `name`, for an argument of type HEADER.
    pub(super) fn header(&mut self, name: &str) -> Option<Header> {
        let (variable, part) = variables::find(name, self.version)?;
        Header::new(variable.message?, part)
    }
}

fn span_of(statement: &ast::Statement) -> Span {
    statement.span
}
