//! Syntax tree of a policy as written, with unresolved names.

use std::cmp::Ordering;

use crate::source::Span;
use crate::words::words;

/// A name and its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// A top-level declaration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Declaration {
    /// `import NAME [as ALIAS] [from "…"];`
    Import { module: Name, alias: Option<Name> },
    /// `backend NAME { .host = "…"; }`, or `backend NAME none;` if `fields` is `None`. `end` is the
    /// last token of the declaration.
    Backend { name: Name, fields: Option<Vec<Field>>, end: Span },
    /// `probe NAME { .url = "…"; }`
    Probe { name: Name, fields: Vec<Field> },
    /// `acl NAME [+log] { "…"/8; }`
    Acl { name: Name, flags: Vec<Flag>, entries: Vec<AclEntry> },
    /// `sub NAME { … }`
    Sub { name: Name, body: Block },
}

/// An attribute `.name = value;` of a backend or a probe.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: Name,
    pub(crate) value: FieldValue,
    pub(crate) value_span: Span,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FieldValue {
    /// One string, or several for a probe's `.request`.
    Texts(Vec<String>),
    Int(i64),
    Real(f64),
    Duration(f64),
    Blob(Vec<u8>),
    Name(String),
    /// An anonymous probe.
    Probe(Vec<Field>),
}

/// An ACL flag: `+log` or `-pedantic`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Flag {
    pub(crate) name: Name,
    pub(crate) is_set: bool,
}

/// An ACL entry, such as `! "192.0.2.0"/24;`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AclEntry {
    pub(crate) is_negated: bool,
    /// Whether the entry is in parentheses, so that it is skipped if its host name does not
    /// resolve.
    pub(crate) is_optional: bool,
    pub(crate) address: String,
    pub(crate) prefix_bits: Option<i64>,
    pub(crate) span: Span,
}

/// A block, `{ … }`.
pub(crate) type Block = Vec<Statement>;

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) span: Span,
}

/// The kind of a statement and its operands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StatementKind {
    /// `set VARIABLE OP VALUE;`, where `operator` is OP without its `=`; `None` for a plain `=`.
    Set { variable: Name, operator: Option<Operator>, value: Expression },
    /// `unset VARIABLE;`
    Unset(Name),
    /// `call SUB;`
    Call(Name),
    /// `return;` or `return (ACTION(…));`
    Return(Option<(Name, Vec<Argument>)>),
    /// An `if` statement: each condition with its block, and the block of the final `else`.
    If { arms: Vec<(Expression, Block)>, otherwise: Block },
    /// `new NAME = CLASS(…);`
    New { name: Name, class: Name, arguments: Vec<Argument> },
    /// A function call used as a statement.
    Do(Expression),
    /// `{ … }`
    Block(Block),
}

/// One expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expression {
    pub(crate) kind: ExpressionKind,
    pub(crate) span: Span,
}

/// A call argument: `value` or `name = value`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Argument {
    pub(crate) name: Option<Name>,
    pub(crate) value: Expression,
}

/// The kind of an expression and its operands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExpressionKind {
    Text(String),
    Int(i64),
    Real(f64),
    Duration(f64),
    Bytes(i64),
    Blob(Vec<u8>),
    Name(String),
    Call {
        name: Name,
        arguments: Vec<Argument>,
    },
    /// `EXPRESSION.upper()`
    Method {
        of: Box<Expression>,
        name: Name,
        arguments: Vec<Argument>,
    },
    Not(Box<Expression>),
    Minus(Box<Expression>),
    Binary(Box<Binary>),
}

/// Two operands and their operator; `at` is the operator's position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Binary {
    pub(crate) operator: Operator,
    pub(crate) at: Span,
    pub(crate) left: Expression,
    pub(crate) right: Expression,
}

words! {
    /// A binary operator.
    pub(crate) enum Operator {
        Or = "||",
        And = "&&",
        Equal = "==",
        NotEqual = "!=",
        Less = "<",
        LessOrEqual = "<=",
        Greater = ">",
        GreaterOrEqual = ">=",
        Match = "~",
        NotMatch = "!~",
        Add = "+",
        Subtract = "-",
        Multiply = "*",
        Divide = "/",
        Remainder = "%",
        /// Implicit concatenation of two adjacent strings.
        Adjacent = "side by side",
    }
}

impl Operator {
    /// Returns whether the operator is a comparison or a match.
    pub(crate) fn is_relation(self) -> bool {
        use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Match, NotEqual, NotMatch};
        matches!(self, Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual | Match | NotMatch)
    }

    /// Returns whether the comparison holds for two values whose ordering is `order`; `None` means
    /// unordered.
    pub(crate) fn accepts(self, order: Option<Ordering>) -> bool {
        match self {
            Operator::Equal => order == Some(Ordering::Equal),
            Operator::NotEqual => order != Some(Ordering::Equal),
            Operator::Less => order == Some(Ordering::Less),
            Operator::LessOrEqual => order.is_some_and(Ordering::is_le),
            Operator::Greater => order == Some(Ordering::Greater),
            _ => order.is_some_and(Ordering::is_ge),
        }
    }
}
