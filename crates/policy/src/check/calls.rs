//! Checks the call graph: detects recursion, and verifies that each construct is allowed in every
//! subroutine that can reach it.

use std::collections::BTreeSet;

use super::Checker;
use crate::step::Sub;

/// Maximum call depth.
pub(crate) const CALL_DEPTH_MAX: usize = 32;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Unseen,
    Open,
    /// Visited; contains the routine's call depth.
    Done(usize),
}

impl Checker<'_> {
    pub(super) fn calls(&mut self) {
        let mut states = vec![State::Unseen; self.routines.len()];
        for routine in 0..self.routines.len() {
            self.depth(routine, &mut states);
        }
        if self.faults.has_errors() && states.contains(&State::Open) {
            return;
        }
        let mut reached = BTreeSet::new();
        for sub in Sub::ALL {
            let root = self.program.entries[sub as usize] as usize;
            let mut seen = BTreeSet::from([root]);
            let mut open = vec![root];
            while let Some(routine) = open.pop() {
                self.uses_in(routine, root, sub);
                for (callee, _) in &self.routines[routine].calls {
                    if seen.insert(*callee as usize) {
                        open.push(*callee as usize);
                    }
                }
            }
            self.program.subs[root].extends_builtin =
                seen.iter().any(|routine| self.has_own_statements(*routine));
            reached.extend(seen);
        }
        for routine in 0..self.routines.len() {
            if !reached.contains(&routine) && !self.routines[routine].is_builtin {
                let name = &self.program.subs[routine].name;
                self.faults.warning(self.routines[routine].span, format!("sub {name} is never called"), None);
            }
        }
    }

    /// Returns whether `routine` has a statement outside the built-in policy.
    fn has_own_statements(&self, routine: usize) -> bool {
        self.program.subs[routine].body.iter().any(|statement| statement.span.file < self.builtin_file)
    }

    /// Returns the call depth of `routine`. Reports recursion as an error.
    fn depth(&mut self, routine: usize, states: &mut [State]) -> usize {
        match states[routine] {
            State::Done(depth) => return depth,
            State::Open => return 0,
            State::Unseen => {}
        }
        states[routine] = State::Open;
        let mut depth = 0;
        for (callee, span) in self.routines[routine].calls.clone() {
            if states[callee as usize] == State::Open {
                let name = self.program.subs[callee as usize].name.clone();
                let help = "recursion is not allowed, direct or indirect";
                self.faults.error_help(span, format!("{name} would call itself"), help);
                continue;
            }
            depth = depth.max(1 + self.depth(callee as usize, states));
            if depth > CALL_DEPTH_MAX {
                self.faults.error(span, format!("calls nested more than {CALL_DEPTH_MAX} deep"));
                depth = 0;
            }
        }
        states[routine] = State::Done(depth);
        depth
    }

    fn uses_in(&mut self, routine: usize, root: usize, sub: Sub) {
        for used in &self.routines[routine].uses {
            if used.allowed.contains(sub) {
                continue;
            }
            let way = if routine == root {
                String::new()
            } else {
                format!("; {sub} calls {}", self.program.subs[routine].name)
            };
            let mut help = if used.allowed.is_empty() {
                format!("not allowed in any subroutine{way}")
            } else {
                format!("allowed in: {}{way}", used.allowed)
            };
            if let Some(advice) = used.advice {
                help = format!("{help}; {advice}");
            }
            self.faults.error_help(used.span, format!("{} in {sub}", used.what), help);
        }
    }
}
