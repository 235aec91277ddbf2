//! The tree of a policy as it was written: names are text, nothing is resolved.

use crate::source::Span;

/// A name and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// What stands at the top of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Declaration {
    /// `import NAME [as ALIAS] [from "…"];`
    Import { module: Name, alias: Option<Name> },
    /// `backend NAME { .host = "…"; }`; without fields it is `none`. It goes up to `end`.
    Backend { name: Name, fields: Option<Vec<Field>>, end: Span },
    /// `probe NAME { .url = "…"; }`
    Probe { name: Name, fields: Vec<Field> },
    /// `acl NAME [+log] { "…"/8; }`
    Acl { name: Name, flags: Vec<Flag>, entries: Vec<AclEntry> },
    /// `sub NAME { … }`
    Sub { name: Name, body: Block },
}

/// `.name = value;` of a backend or a probe.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: Name,
    pub(crate) value: FieldValue,
    pub(crate) value_span: Span,
}

/// What a field may be set to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FieldValue {
    /// Strings, more than one for a probe's `.request`.
    Texts(Vec<String>),
    Int(i64),
    Real(f64),
    Duration(f64),
    Blob(Vec<u8>),
    Name(String),
    /// A probe without a name.
    Probe(Vec<Field>),
}

/// `+log` or `-pedantic` of an ACL.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Flag {
    pub(crate) name: Name,
    pub(crate) is_set: bool,
}

/// `! "192.0.2.0"/24;`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AclEntry {
    pub(crate) is_negated: bool,
    /// In brackets: left out if its name has no address.
    pub(crate) is_optional: bool,
    pub(crate) address: String,
    pub(crate) prefix_bits: Option<i64>,
    pub(crate) span: Span,
}

/// `{ … }`
pub(crate) type Block = Vec<Statement>;

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) span: Span,
}

/// What a statement does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StatementKind {
    /// `set VARIABLE OP VALUE;`; the operator without its `=`, if it has more than that.
    Set { variable: Name, operator: Option<Operator>, value: Expression },
    /// `unset VARIABLE;`
    Unset(Name),
    /// `call SUB;`
    Call(Name),
    /// `return;` or `return (ACTION(…));`
    Return(Option<(Name, Vec<Argument>)>),
    /// Each condition with its block, and the last `else`.
    If { arms: Vec<(Expression, Block)>, otherwise: Block },
    /// `new NAME = CLASS(…);`
    New { name: Name, class: Name, arguments: Vec<Argument> },
    /// A function called for what it does.
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

/// `value` or `name = value` of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Argument {
    pub(crate) name: Option<Name>,
    pub(crate) value: Expression,
}

/// What an expression is.
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
    Binary {
        operator: Operator,
        at: Span,
        left: Box<Expression>,
        right: Box<Expression>,
    },
}

/// What joins two expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Match,
    NotMatch,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    /// Two strings side by side.
    Adjacent,
}

impl Operator {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Operator::Or => "||",
            Operator::And => "&&",
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::Match => "~",
            Operator::NotMatch => "!~",
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Remainder => "%",
            Operator::Adjacent => "side by side",
        }
    }
}
