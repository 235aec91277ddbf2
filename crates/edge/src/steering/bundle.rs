//! Applies a bundle's rules and experiments to a connection.
//!
//! Rules and experiments are evaluated before the first content byte of a response, each once per
//! connection. A connection keeps its arm when a rule's redraw period or switchback block ends.
//! Connections in the holdout, or in an arm without an algorithm, are marked at the same point at
//! which other connections are changed, so that their records can be compared.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use thalweg_bundle::Bundle;
use thalweg_record::{Decider, Steered};

use crate::clock::now_ms;

use super::{SharedSteering, Steering, SteeringRequest, chain};

/// The response for which a bundle is evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Response<'a> {
    pub(crate) client: SocketAddr,
    /// Host of the request, without port or trailing dot.
    pub(crate) host: &'a str,
    /// Content length, if known.
    pub(crate) bytes: Option<u64>,
}

impl Steering {
    /// Applies the bundle's experiment and rule for this response, if due. Refusals by the kernel
    /// are counted and logged.
    pub(crate) fn follow(
        &mut self,
        fd: BorrowedFd<'_>,
        bundle: &Bundle,
        response: Response<'_>,
        common: &SharedSteering,
    ) {
        // Evaluate experiments first, because they take precedence over rules.
        self.follow_experiment(fd, bundle, response, common);
        self.follow_rule(fd, bundle, response, common);
    }

    /// Returns the bundle's decision for this connection.
    pub(crate) fn steered(&self) -> Option<&Arc<Steered>> {
        self.steered.as_ref()
    }

    fn steered_mut(&mut self) -> &mut Steered {
        Arc::make_mut(self.steered.get_or_insert_default())
    }

    fn follow_experiment(
        &mut self,
        fd: BorrowedFd<'_>,
        bundle: &Bundle,
        response: Response<'_>,
        common: &SharedSteering,
    ) {
        if !self.is_due(Decider::Experiment, response.bytes, common.size_bytes_min) {
            return;
        }
        let Some(experiment) = bundle.experiment(response.host) else { return };
        let arm = experiment.arm(response.client);
        // Bundle validation guarantees that algorithm names parse.
        let algorithm = arm.congestion_control.as_deref();
        let request = SteeringRequest {
            by: Decider::Experiment,
            algorithm: algorithm.and_then(|name| name.parse().ok()),
            response_bytes: response.bytes,
            size_bytes_min: common.size_bytes_min,
        };
        if self.apply_from_bundle(fd, request, common) {
            let steered = self.steered_mut();
            steered.bundle = bundle.content().number;
            (steered.experiment, steered.arm) = (Some(experiment.name.clone()), Some(arm.name.clone()));
        }
    }

    fn follow_rule(
        &mut self,
        fd: BorrowedFd<'_>,
        bundle: &Bundle,
        response: Response<'_>,
        common: &SharedSteering,
    ) {
        // Check first: after a connection's first large response, no rule look-up is needed.
        if !self.is_open_to(Decider::Rule) {
            return;
        }
        let Some(rule) = bundle.rule(response.client.ip(), response.host) else { return };
        if !self.is_due(Decider::Rule, response.bytes, rule.size_bytes_min.unwrap_or(common.size_bytes_min)) {
            return;
        }
        let unix_s = now_ms() / 1_000;
        let is_holdout = rule.holds_out(response.client.ip(), unix_s);
        let algorithm = (!is_holdout).then_some(rule.congestion_control.as_str());
        let request = SteeringRequest {
            by: Decider::Rule,
            algorithm: algorithm.and_then(|name| name.parse().ok()),
            response_bytes: response.bytes,
            size_bytes_min: rule.size_bytes_min.unwrap_or(common.size_bytes_min),
        };
        if self.apply_from_bundle(fd, request, common) {
            let steered = self.steered_mut();
            steered.bundle = bundle.content().number;
            (steered.rule, steered.is_holdout) = (Some(rule.prefix.to_string()), is_holdout);
            steered.draw_period = rule.period(unix_s);
        }
    }

    /// Applies the algorithm of a rule or arm, and records a refusal. Returns whether the request
    /// was due, even if refused.
    fn apply_from_bundle(
        &mut self,
        fd: BorrowedFd<'_>,
        request: SteeringRequest,
        common: &SharedSteering,
    ) -> bool {
        match self.apply(fd, request, common) {
            Ok(is_due) => is_due,
            Err(error) => {
                self.steered_mut().refused = Some(chain(&error));
                true
            }
        }
    }
}
