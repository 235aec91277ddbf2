//! `return`: which action, with which arguments.

use super::{Checker, Use};
use crate::ast::{self, Argument, ExpressionKind, Name};
use crate::fault::suggest;
use crate::idioms::{Place, advice, help};
use crate::program::{Does, Expression, Returns};
use crate::source::Span;
use crate::step::{ACTIONS, Action, ActionArguments, ActionRule, Sub};
use crate::types::Type;
use crate::value::{Value, final_status};

impl Checker<'_> {
    /// `return;`
    pub(super) fn leave(&mut self, span: Span) -> Option<Does> {
        let name = &self.program.subs[self.current].name;
        if Sub::named(name).is_some() {
            let help = "return (ACTION); says what happens next; return; alone leaves a called subroutine";
            self.faults.error_help(span, format!("{name} returns an action"), help);
            return None;
        }
        Some(Does::Leave)
    }

    /// `return (action(arguments));`
    pub(super) fn returns(&mut self, action: &Name, arguments: &[Argument]) -> Option<Does> {
        let Some(rule) = ACTIONS.iter().find(|rule| rule.name == action.text) else {
            let sub = Sub::named(&self.program.subs[self.current].name);
            let known: Vec<&str> = match sub {
                Some(sub) => sub.actions().map(|rule| rule.name).collect(),
                None => ACTIONS.iter().map(|rule| rule.name).collect(),
            };
            let help = help(Place::Action, &action.text, known);
            self.faults.error_help(action.span, format!("unknown action {}", action.text), help);
            return None;
        };
        let what = format!("{} cannot be returned", rule.name);
        let advice = advice(Place::Action, rule.name);
        self.routines[self.current].uses.push(Use { span: action.span, allowed: rule.from, what, advice });
        let mut arguments = arguments.iter().map(|argument| &argument.value);
        let (first, second) = (arguments.next(), arguments.next());
        if let Some(more) = arguments.next() {
            self.faults.error(more.span, format!("{} takes no more arguments", rule.name));
            return None;
        }
        self.what_returns(rule, action.span, first, second)
    }

    fn what_returns(
        &mut self,
        rule: &ActionRule,
        span: Span,
        first: Option<&ast::Expression>,
        second: Option<&ast::Expression>,
    ) -> Option<Does> {
        let computed = |returns| Some(Does::Return(Box::new(returns)));
        match (rule.arguments, first, second) {
            (ActionArguments::None | ActionArguments::MaybeDuration, None, _) => {
                Some(Does::Act(plain(rule.name)))
            }
            (ActionArguments::MaybeReason, None, _) => Some(Does::Act(Action::Fail { reason: None })),
            (ActionArguments::MaybeStatusAndReason, None, _) => {
                Some(Does::Act(Action::Error { status: 503, reason: None }))
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
                let message = format!("wrong arguments of {}", rule.name);
                self.faults.error_help(span, message, takes(rule.arguments));
                None
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
            self.faults.error_help(span, failure.what(), "it is from 200 to 999");
        }
    }

    fn label(&mut self, label: &ast::Expression) -> Option<Does> {
        let ExpressionKind::Name(name) = &label.kind else {
            self.faults.error(label.span, "expected a label");
            return None;
        };
        if let Some(known) = &self.known.labels
            && !known.contains(name)
        {
            let help = suggest(name, known.iter().map(String::as_str).collect::<Vec<_>>());
            self.faults.error_help(label.span, format!("unknown label {name}"), help);
            return None;
        }
        self.program.labels.push(name.clone());
        Some(Does::Act(Action::Vcl(name.clone())))
    }
}

/// What an action takes, for who gave it something else.
fn takes(arguments: ActionArguments) -> &'static str {
    match arguments {
        ActionArguments::None => "it takes no argument",
        ActionArguments::StatusAndReason | ActionArguments::MaybeStatusAndReason => {
            "it takes a status and a reason: synth(404, \"Not here\")"
        }
        ActionArguments::MaybeReason => "it takes a reason",
        ActionArguments::Label => "it takes a label: vcl(LABEL)",
        ActionArguments::MaybeDuration => "it takes a duration: pass(120s)",
    }
}

fn plain(name: &str) -> Action {
    match name {
        "abandon" => Action::Abandon,
        "deliver" => Action::Deliver,
        "fetch" => Action::Fetch,
        "hash" => Action::Hash,
        "lookup" => Action::Lookup,
        "ok" => Action::Ok,
        "pass" => Action::Pass,
        "pipe" => Action::Pipe,
        "purge" => Action::Purge,
        "restart" => Action::Restart,
        _ => Action::Retry,
    }
}
