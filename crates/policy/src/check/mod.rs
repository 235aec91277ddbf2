//! Checker: turns the syntax tree into a program, resolving names and types and checking where each
//! construct is allowed.
//!
//! The checker makes three passes, over declarations, subroutine bodies and the call graph, and
//! reports all faults together. The resulting program is valid only if there are no errors.

mod arguments;
mod body;
mod calls;
mod declare;
mod expression;
mod operators;
mod returns;

use std::collections::HashMap;
use std::net::IpAddr;

use thalweg_units::nearest;

use crate::ast::{Declaration, Name, StatementKind};
use crate::bindings::MODULES;
use crate::fault::{Faults, suggest};
use crate::files::Files;
use crate::functions::Module;
use crate::idioms::{Place, advice, help};
use crate::parse::{Item, Version};
use crate::program::{ObjectRow, Program, Routine};
use crate::source::{Sources, Span};
use crate::step::{Sub, Subs};

/// What is known about the host and its configuration when a policy is checked.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Congestion control algorithms available in the kernel; `None` if unknown.
    pub congestion_algorithms: Option<Vec<String>>,
    /// Whether a database for `client.geo.*` and `client.as.*` is configured; `None` if unknown.
    pub has_geo: Option<bool>,
    /// Storage names, for `storage.NAME`.
    pub storages: Vec<String>,
    /// Labels for `return (vcl(LABEL))`; `None` if unknown.
    pub labels: Option<Vec<String>>,
    /// Function that resolves a host name in an ACL. If `None`, host names are rejected.
    pub resolve: Option<fn(&str) -> Vec<IpAddr>>,
    /// Function that returns whether a backend's host name currently resolves. If `None`, host
    /// names are not checked.
    pub is_known_host: Option<fn(&str) -> bool>,
}

/// Maximum number of subroutines in one policy.
pub(crate) const SUBS_MAX: usize = 1_000;

/// The declaration that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Symbol {
    Backend(u32),
    Probe(u32),
    Acl(u32),
    Sub(u32),
    Object(u32),
}

/// Use of a construct that is allowed only in some subroutines.
#[derive(Debug)]
struct Use {
    span: Span,
    allowed: Subs,
    what: String,
    /// Advice from [`idioms`](crate::idioms).
    advice: Option<&'static str>,
}

/// Properties of a subroutine other than its body.
#[derive(Debug, Default)]
struct RoutineUse {
    span: Span,
    uses: Vec<Use>,
    calls: Vec<(u32, Span)>,
    is_builtin: bool,
}

/// An imported module.
struct Import {
    name: String,
    module: &'static Module,
    span: Span,
    is_used: bool,
}

/// The checker's state.
pub(crate) struct Checker<'c> {
    known: &'c Known,
    faults: &'c mut Faults,
    /// Index of the first file of the built-in policy.
    builtin_file: u32,
    version: Version,
    symbols: HashMap<String, (Symbol, Span)>,
    used: Vec<Symbol>,
    imports: Vec<Import>,
    routines: Vec<RoutineUse>,
    /// The subroutine whose body is being checked.
    current: usize,
    program: Program,
}

/// Compiles `items` to a program and reports faults to `faults`. Files with index `builtin_file` or
/// higher are the built-in policy.
pub(crate) fn check(
    items: &[Item],
    builtin_file: u32,
    sources: Sources,
    known: &Known,
    faults: &mut Faults,
) -> Program {
    let main = items.iter().find(|item| item.version == Version::V40).map_or(41, |_| 40);
    let program = Program {
        version: main,
        sources,
        backends: Vec::new(),
        default_backend: None,
        probes: Vec::new(),
        acls: Vec::new(),
        regexes: Vec::new(),
        subs: Vec::new(),
        entries: [0; Sub::ALL.len()],
        objects: Vec::new(),
        instances: Vec::new(),
        files: Files::default(),
        labels: Vec::new(),
    };
    let mut checker = Checker {
        known,
        faults,
        builtin_file,
        version: Version::V41,
        symbols: HashMap::new(),
        used: Vec::new(),
        imports: Vec::new(),
        routines: Vec::new(),
        current: 0,
        program,
    };
    checker.declare(items);
    checker.bodies(items);
    checker.calls();
    checker.unused();
    checker.program
}

impl Checker<'_> {
    /// Declares all names and checks everything except subroutine bodies.
    fn declare(&mut self, items: &[Item]) {
        for item in items {
            match &item.declaration {
                Declaration::Import { module, alias } => self.import(module, alias.as_ref()),
                Declaration::Sub { name, .. } => self.declare_sub(name, items),
                Declaration::Probe { name, fields } => {
                    if let Some(row) = self.probe(&name.text, fields, name.span) {
                        self.symbol(name, "probe", Symbol::Probe(row));
                    }
                }
                Declaration::Backend { .. } | Declaration::Acl { .. } => {}
            }
        }
        // A second loop, because backends may refer to probes declared later, and objects to
        // modules imported later.
        for item in items {
            match &item.declaration {
                Declaration::Backend { name, fields, end } => self.backend(name, fields.as_deref(), *end),
                Declaration::Acl { name, flags, entries } => self.acl(name, flags, entries),
                Declaration::Sub { name, body } if name.text == Sub::Init.as_str() => {
                    self.declare_objects(body);
                }
                _ => {}
            }
        }
        self.default_backend();
    }

    fn import(&mut self, module: &Name, alias: Option<&Name>) {
        let Some(known) = MODULES.iter().find(|known| known.name == module.text) else {
            let help = help(Place::Name, &module.text, MODULES.iter().map(|known| known.name));
            self.faults.error_help(module.span, format!("unknown module {}", module.text), help);
            return;
        };
        let name = alias.unwrap_or(module);
        match self.imports.iter().find(|import| import.name == name.text) {
            // Repeated imports are allowed, because each included file may import the modules it
            // needs.
            Some(import) if import.module.name == known.name => {}
            Some(_) => self.faults.error(name.span, format!("{} already names another module", name.text)),
            None => {
                let import =
                    Import { name: name.text.clone(), module: known, span: module.span, is_used: false };
                self.imports.push(import);
            }
        }
    }

    fn symbol(&mut self, name: &Name, what: &str, symbol: Symbol) {
        if name.text.contains('.') {
            self.faults.error(name.span, format!("{what} names cannot contain a dot"));
            return;
        }
        if let Some((_, first)) = self.symbols.get(&name.text) {
            let place = self.program.sources.place(*first);
            let help = format!("first declared at {place}");
            self.faults.error_help(name.span, format!("{} is declared twice", name.text), help);
            return;
        }
        self.symbols.insert(name.text.clone(), (symbol, name.span));
    }

    fn declare_sub(&mut self, name: &Name, items: &[Item]) {
        let is_builtin = name.span.file >= self.builtin_file;
        let is_in_builtin = || {
            items.iter().any(|item| {
                matches!(&item.declaration, Declaration::Sub { name: other, .. }
                    if other.span.file >= self.builtin_file && other.text == name.text)
            })
        };
        if name.text.starts_with("vcl_") {
            if let Some((Symbol::Sub(index), _)) = self.symbols.get(&name.text) {
                // Definitions of the same subroutine are concatenated in source order.
                self.routines[*index as usize].is_builtin &= is_builtin;
                return;
            }
            if !is_builtin && !is_in_builtin() {
                let known = Sub::ALL.map(Sub::as_str);
                let help = advice(Place::Subroutine, &name.text).map_or_else(
                    || format!("names that begin with vcl_ are reserved; {}", suggest(&name.text, known)),
                    str::to_owned,
                );
                self.faults.error_help(name.span, format!("unknown subroutine {}", name.text), help);
                self.declare_as_intended(name, items);
                return;
            }
        }
        if self.program.subs.len() >= SUBS_MAX {
            self.faults.error(name.span, format!("more than {SUBS_MAX} subroutines"));
            return;
        }
        let index = index(self.program.subs.len());
        self.program.subs.push(Routine { name: name.text.clone(), ..Routine::default() });
        self.routines.push(RoutineUse { span: name.span, is_builtin, ..RoutineUse::default() });
        self.symbol(name, "subroutine", Symbol::Sub(index));
        if let Some(sub) = Sub::named(&name.text) {
            self.program.entries[sub as usize] = index;
        }
    }

    /// Declares an unknown subroutine under the name its author probably intended, so that the
    /// faults in its body are reported too.
    fn declare_as_intended(&mut self, name: &Name, items: &[Item]) {
        let mut words = advice(Place::Subroutine, &name.text)
            .into_iter()
            .flat_map(|advice| advice.split([' ', ',', ';']));
        let near = || nearest(&name.text, Sub::ALL.map(Sub::as_str));
        let Some(meant) = words.find(|word| Sub::named(word).is_some()).or_else(near) else { return };
        self.declare_sub(&Name { text: meant.to_owned(), span: name.span }, items);
        if let Some(symbol) = self.symbols.get(meant).copied() {
            self.symbols.insert(name.text.clone(), symbol);
        }
    }

    /// Declares the objects created by `new` in `block`, so that earlier files can use them.
    fn declare_objects(&mut self, block: &[crate::ast::Statement]) {
        for statement in block {
            match &statement.kind {
                StatementKind::New { name, class, .. } => self.declare_object(name, class),
                StatementKind::Block(block) => self.declare_objects(block),
                StatementKind::If { arms, otherwise } => {
                    arms.iter().for_each(|(_, block)| self.declare_objects(block));
                    self.declare_objects(otherwise);
                }
                _ => {}
            }
        }
    }

    fn declare_object(&mut self, name: &Name, class: &Name) {
        let Some((module, class_name)) = class.text.split_once('.') else {
            let help = "write the module's name before the class: directors.round_robin";
            self.faults.error_help(class.span, format!("{} is not a class", class.text), help);
            return;
        };
        let Some(module) = self.module(module, &class.text, class.span) else { return };
        let Some(known) = module.classes.iter().find(|known| known.name == class_name) else {
            let help = suggest(class_name, module.classes.iter().map(|known| known.name));
            self.faults.error_help(class.span, format!("{} has no class {class_name}", module.name), help);
            return;
        };
        let object = index(self.program.objects.len());
        self.program.objects.push(ObjectRow { name: name.text.clone(), class: known });
        self.program.instances.push(None);
        self.symbol(name, "object", Symbol::Object(object));
    }

    /// Finds the module imported as `name`; `whole` is the full dotted name, used for advice.
    fn module(&mut self, name: &str, whole: &str, span: Span) -> Option<&'static Module> {
        if let Some(import) = self.imports.iter_mut().find(|import| import.name == name) {
            import.is_used = true;
            return Some(import.module);
        }
        if MODULES.iter().any(|module| module.name == name) {
            let help = format!("add import {name}; at the top");
            self.faults.error_help(span, format!("module {name} is not imported"), help);
        } else {
            let names = self.imports.iter().map(|import| import.name.as_str());
            let objects = self.program.objects.iter().map(|object| object.name.as_str());
            let help = match advice(Place::Name, whole) {
                Some(advice) => advice.to_owned(),
                None => suggest(name, names.chain(objects).collect::<Vec<_>>()),
            };
            self.faults.error_help(span, format!("unknown module or object {name}"), help);
        }
        None
    }

    fn unused(&mut self) {
        let mut unused: Vec<(Span, String)> = Vec::new();
        for (name, (symbol, span)) in &self.symbols {
            let what = match symbol {
                Symbol::Acl(_) => "acl",
                Symbol::Probe(_) if name != "default" => "probe",
                Symbol::Backend(index) if self.program.default_backend != Some(*index) => "backend",
                _ => continue,
            };
            if !self.used.contains(symbol) {
                unused.push((*span, format!("{what} {name} is not used")));
            }
        }
        for import in self.imports.iter().filter(|import| !import.is_used) {
            unused.push((import.span, format!("module {} is not used", import.name)));
        }
        for (span, message) in unused {
            self.faults.warning(span, message, None);
        }
    }
}

fn index(length: usize) -> u32 {
    u32::try_from(length).expect("a policy has fewer than 2^32 declarations")
}
