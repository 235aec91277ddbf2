//! Checks `return`: its action and arguments.

use super::{Checker, Use};
use crate::ast::{self, Argument, ExpressionKind, Name};
use crate::fault::suggest;
use crate::idioms::{Place, advice, help};
use crate::program::{Expression, Operation, Returns};
use crate::source::Span;
use crate::step::{ACTIONS, Action, ActionArguments, ActionRule, Sub};
use crate::types::Type;
use crate::value::{Value, final_status};

impl Checker<'_> {
    /// Checks `return;`.
    pub(super) fn leave(&mut self, span: Span) -> Option<Operation> {
        let name = &self.program.subs[self.current].name;
        if Sub::named(name).is_some() {
            let help = "write return (ACTION); a plain return; only leaves a called subroutine";
            return self.faults.refuse_help(span, format!("{name} must return an action"), help);
        }
        Some(Operation::Leave)
    }

    /// Checks `return (action(arguments));`.
    pub(super) fn returns(&mut self, action: &Name, arguments: &[Argument]) -> Option<Operation> {
        let Some(rule) = ACTIONS.iter().find(|rule| rule.name == action.text) else {
            let sub = Sub::named(&self.program.subs[self.current].name);
            let known: Vec<&str> = match sub {
                Some(sub) => sub.actions().map(|rule| rule.name).collect(),
                None => ACTIONS.iter().map(|rule| rule.name).collect(),
            };
            let help = help(Place::Action, &action.text, known);
            return self.faults.refuse_help(action.span, format!("unknown action {}", action.text), help);
        };
        let what = format!("{} cannot be returned", rule.name);
        let advice = advice(Place::Action, rule.name);
        self.routines[self.current].uses.push(Use { span: action.span, allowed: rule.from, what, advice });
        let mut arguments = arguments.iter().map(|argument| &argument.value);
        let (first, second) = (arguments.next(), arguments.next());
        if let Some(more) = arguments.next() {
            return self.faults.refuse(more.span, format!("too many arguments for {}", rule.name));
        }
        self.return_action(rule, action.span, first, second)
    }

    fn return_action(
        &mut self,
        rule: &ActionRule,
        span: Span,
        first: Option<&ast::Expression>,
        second: Option<&ast::Expression>,
    ) -> Option<Operation> {
        let computed = |returns| Some(Operation::Return(Box::new(returns)));
        match (&rule.arguments, first, second) {
            (ActionArguments::None(action), None, _) => Some(Operation::Act(action.clone())),
            (ActionArguments::MaybeDuration, None, _) => Some(Operation::Act(Action::Pass)),
            (ActionArguments::MaybeReason, None, _) => Some(Operation::Act(Action::Fail { reason: None })),
            (ActionArguments::MaybeStatusAndReason, None, _) => {
                Some(Operation::Act(Action::Error { status: 503, reason: None }))
            }
            (ActionArguments::MaybeReason, Some(reason), None) => {
                computed(Returns::Fail(self.expression(reason, Type::String)?))
            }
            (ActionArguments::MaybeDuration, Some(duration), None) => {
                computed(Returns::PassFor(self.expression(duration, Type::Duration)?))
            }
            (ActionArguments::Label, Some(label), None) => self.label(label),
            (ActionArguments::StatusAndReason, Some(status), reason) => {
                let (status, reason) = self.status_and_reason(status, reason)?;
                computed(Returns::Synth { status, reason })
            }
            (ActionArguments::MaybeStatusAndReason, Some(status), reason) => {
                let (status, reason) = self.status_and_reason(status, reason)?;
                computed(Returns::Error { status, reason })
            }
            _ => {
                let message = format!("wrong arguments for {}", rule.name);
                self.faults.refuse_help(span, message, takes(&rule.arguments))
            }
        }
    }

    fn status_and_reason(
        &mut self,
        status: &ast::Expression,
        reason: Option<&ast::Expression>,
    ) -> Option<(Expression, Option<Expression>)> {
        let lowered = self.expression(status, Type::Int)?;
        self.check_status(&lowered, status.span);
        let reason = match reason {
            Some(reason) => Some(self.expression(reason, Type::String)?),
            None => None,
        };
        Some((lowered, reason))
    }

    pub(super) fn check_status(&mut self, status: &Expression, span: Span) {
        if let Expression::Constant(Value::Int(value)) = status
            && let Err(failure) = final_status(*value)
        {
            self.faults.error_help(span, failure.what(), "use 200 to 999");
        }
    }

    fn label(&mut self, label: &ast::Expression) -> Option<Operation> {
        let ExpressionKind::Name(name) = &label.kind else {
            return self.faults.refuse(label.span, "expected a label");
        };
        if let Some(known) = &self.known.labels
            && !known.contains(name)
        {
            let help = suggest(name, known.iter().map(String::as_str).collect::<Vec<_>>());
            return self.faults.refuse_help(label.span, format!("unknown label {name}"), help);
        }
        self.program.labels.push(name.clone());
        Some(Operation::Act(Action::Vcl(name.clone())))
    }
}

/// Returns a help text for an action's arguments.
fn takes(arguments: &ActionArguments) -> &'static str {
    match arguments {
        ActionArguments::None(_) => "it takes no argument",
        ActionArguments::StatusAndReason | ActionArguments::MaybeStatusAndReason => {
            "it takes a status and a reason: synth(404, \"Not here\")"
        }
        ActionArguments::MaybeReason => "it takes a reason",
        ActionArguments::Label => "it takes a label: vcl(LABEL)",
        ActionArguments::MaybeDuration => "it takes a duration: pass(120s)",
    }
}
