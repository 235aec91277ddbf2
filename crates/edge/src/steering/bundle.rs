//! Applies a bundle's rules and experiments to a connection.
//!
//! A connection is assigned to at most one arm and at most one rule, each before the first content
//! byte of the first response that is large enough. The connection keeps both assignments when a
//! rule's redraw period or switchback block ends. Connections in the holdout, or in an arm without
//! an algorithm, are assigned at the same point as others, so that their records can be compared.
//!
//! **Invariant:** an assignment depends neither on the other assignment nor on a policy. It is
//! recorded even if a stronger decider has set the algorithm.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use thalweg_bundle::Bundle;
use thalweg_record::{Decider, Steered};

use crate::clock::now_ms;

use super::{SharedSteering, Steering, SteeringRequest, bit, chain};

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

    /// Assigns the connection to an arm of the host's experiment, if due.
    fn follow_experiment(
        &mut self,
        fd: BorrowedFd<'_>,
        bundle: &Bundle,
        response: Response<'_>,
        common: &SharedSteering,
    ) {
        if !self.is_assignable(Decider::Experiment) || !self.is_large(response.bytes, common.size_bytes_min) {
            return;
        }
        let Some(experiment) = bundle.experiment(response.host) else { return };
        let arm = experiment.arm(response.client);
        let steered = self.steered_mut();
        steered.bundle = bundle.content().number;
        (steered.experiment, steered.arm) = (Some(experiment.name.clone()), Some(arm.name.clone()));
        self.apply_assigned(fd, Decider::Experiment, arm.congestion_control.as_deref(), common);
    }

    /// Assigns the connection to the rule for the client, if due.
    fn follow_rule(
        &mut self,
        fd: BorrowedFd<'_>,
        bundle: &Bundle,
        response: Response<'_>,
        common: &SharedSteering,
    ) {
        // Check first: after a connection's first large response, no rule look-up is needed.
        if !self.is_assignable(Decider::Rule) {
            return;
        }
        let Some(rule) = bundle.rule(response.client.ip(), response.host) else { return };
        if !self.is_large(response.bytes, rule.size_bytes_min.unwrap_or(common.size_bytes_min)) {
            return;
        }
        let unix_s = now_ms() / 1_000;
        let is_holdout = rule.holds_out(response.client.ip(), unix_s);
        let steered = self.steered_mut();
        steered.bundle = bundle.content().number;
        (steered.rule, steered.is_holdout) = (Some(rule.prefix.to_string()), is_holdout);
        steered.draw_period = rule.period(unix_s);
        let algorithm = (!is_holdout).then_some(rule.congestion_control.as_str());
        self.apply_assigned(fd, Decider::Rule, algorithm, common);
    }

    /// Sets the algorithm of an assigned rule or arm unless a stronger decider has set one, and
    /// records a refusal.
    fn apply_assigned(
        &mut self,
        fd: BorrowedFd<'_>,
        by: Decider,
        algorithm: Option<&str>,
        common: &SharedSteering,
    ) {
        if Some(by) <= self.decided {
            self.requested |= bit(by);
            return;
        }
        // Bundle validation guarantees that algorithm names parse.
        let algorithm = algorithm.and_then(|name| name.parse().ok());
        let request = SteeringRequest { by, algorithm, response_bytes: None, size_bytes_min: 0 };
        if let Err(error) = self.apply(fd, request, common) {
            self.steered_mut().refused = Some(chain(&error));
        }
    }
}
