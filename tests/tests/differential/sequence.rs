//! A sequence: the rule it exercises, the backend's answers, and the steps of requests.

/// Steps of requests for one URL, or a few.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    /// The first segment of its path.
    pub(crate) name: &'static str,
    /// The rule, by document and section.
    pub(crate) clause: &'static str,
    pub(crate) answers: Vec<Answer>,
    pub(crate) steps: Vec<Step>,
    /// Fields of responses that are compared, and of requests to the backend, in lower case.
    pub(crate) shown: Vec<&'static str>,
    pub(crate) passed: Vec<&'static str>,
}

/// What the backend answers.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Lines; `{-60}` stands for the date 60 seconds ago.
    pub(crate) fields: &'static str,
    pub(crate) content: &'static str,
    /// Fields of the 304, where they are others.
    pub(crate) not_modified: Option<&'static str>,
    pub(crate) form: Form,
}

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Length,
    Chunked,
    /// Not at all: the connection is closed.
    Closed,
    /// After so much of its content, and once the test lets go of it, the connection is closed; but all of the rest goes
    /// to who asks for that.
    Broken(usize),
    /// After so much of its content, it is kept back until the test lets go of it.
    Halting(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// The rest of its path.
    pub(crate) tail: &'static str,
    pub(crate) fields: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Ask(Request),
    /// Asked, and so is the backend, maybe after the response.
    Behind(Request),
    /// Asked again until this content comes.
    Until(Request, &'static str),
    /// Asked; once the response has begun, the backend goes on with it.
    Begin(Request),
    /// Asked; with the first of the content the client leaves, then all of it comes.
    Leave(Request),
    /// So many at a time, sent while the backend keeps its answer back.
    Together(Request, usize),
    /// Lifetimes of a second, and a second's use after them, are over. No step by number.
    Later,
}

/// A sequence without answers or steps yet.
pub(crate) fn sequence(name: &'static str, clause: &'static str) -> Sequence {
    Sequence { name, clause, answers: Vec::new(), steps: Vec::new(), shown: Vec::new(), passed: Vec::new() }
}

impl Sequence {
    pub(crate) fn answers(mut self, status: u16, fields: &'static str, content: &'static str) -> Self {
        self.answers.push(Answer { status, fields, content, not_modified: None, form: Form::Length });
        self
    }

    pub(crate) fn ok(self, fields: &'static str, content: &'static str) -> Self {
        self.answers(200, fields, content)
    }

    /// The last answer's 304 has these fields.
    pub(crate) fn not_modified(mut self, fields: &'static str) -> Self {
        self.last().not_modified = Some(fields);
        self
    }

    /// The last answer is chunked.
    pub(crate) fn chunked(mut self) -> Self {
        self.last().form = Form::Chunked;
        self
    }

    /// The backend closes the connection.
    pub(crate) fn closed(mut self) -> Self {
        self = self.ok("", "");
        self.last().form = Form::Closed;
        self
    }

    /// The last answer breaks off after `length` bytes of its content.
    pub(crate) fn breaks_off(mut self, length: usize) -> Self {
        self.last().form = Form::Broken(length);
        self
    }

    /// The last answer halts after `length` bytes of its content.
    pub(crate) fn halts(mut self, length: usize) -> Self {
        self.last().form = Form::Halting(length);
        self
    }

    fn last(&mut self) -> &mut Answer {
        self.answers.last_mut().expect("an answer comes before what is said of it")
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn get(self, fields: &'static str) -> Self {
        self.get_at("", fields)
    }

    pub(crate) fn get_at(self, tail: &'static str, fields: &'static str) -> Self {
        self.step(Step::Ask(Request { method: "GET", tail, fields }))
    }

    pub(crate) fn head(self, fields: &'static str) -> Self {
        self.step(Step::Ask(Request { method: "HEAD", tail: "", fields }))
    }

    /// A request that may change something, without content.
    pub(crate) fn change(self, method: &'static str) -> Self {
        self.step(Step::Ask(Request { method, tail: "", fields: "Content-Length: 0" }))
    }

    pub(crate) fn begin(self) -> Self {
        self.step(Step::Begin(Request { method: "GET", tail: "", fields: "" }))
    }

    pub(crate) fn leave(self) -> Self {
        self.step(Step::Leave(Request { method: "GET", tail: "", fields: "" }))
    }

    pub(crate) fn later(self) -> Self {
        self.step(Step::Later)
    }

    pub(crate) fn behind(self) -> Self {
        self.step(Step::Behind(Request { method: "GET", tail: "", fields: "" }))
    }

    pub(crate) fn until(self, content: &'static str) -> Self {
        self.step(Step::Until(Request { method: "GET", tail: "", fields: "" }, content))
    }

    pub(crate) fn together(self, count: usize) -> Self {
        self.step(Step::Together(Request { method: "GET", tail: "", fields: "" }, count))
    }

    pub(crate) fn shows(mut self, names: &[&'static str]) -> Self {
        self.shown = names.to_vec();
        self
    }

    pub(crate) fn passes(mut self, names: &[&'static str]) -> Self {
        self.passed = names.to_vec();
        self
    }
}
