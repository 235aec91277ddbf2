//! Test sequences: the tested rule, the backend's scripted responses, and the client's steps.

/// Steps of requests for one or a few URLs.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    /// First path segment of the sequence's URLs.
    pub(crate) name: &'static str,
    /// The tested rule, as document and section.
    pub(crate) clause: &'static str,
    pub(crate) answers: Vec<Answer>,
    pub(crate) steps: Vec<Step>,
    /// Fields to compare, in lower case: of responses, and of requests to the backend.
    pub(crate) shown: Vec<&'static str>,
    pub(crate) passed: Vec<&'static str>,
}

/// A scripted response of the backend.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Field lines; `{-60}` is replaced by the date 60 seconds ago.
    pub(crate) fields: &'static str,
    pub(crate) content: &'static str,
    /// Fields of the 304, if different from `fields`.
    pub(crate) not_modified: Option<&'static str>,
    pub(crate) form: Form,
}

/// How a scripted response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Length,
    Chunked,
    /// No response: the connection is closed.
    Closed,
    /// The connection is closed after this many bytes of content, once the test releases the
    /// response. A range request for the remaining bytes gets all of them.
    Broken(usize),
    /// Held after this many bytes of content until the test releases it.
    Halting(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// The path after the sequence's name.
    pub(crate) tail: &'static str,
    pub(crate) fields: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send(Request),
    /// Sends a request that causes this many backend requests, possibly after the response.
    Background(Request, usize),
    /// Repeats a request until the response has this content.
    Until(Request, &'static str),
    /// Sends a request. The backend continues once the client has received the start of the
    /// response.
    Begin(Request),
    /// Sends a request. The client disconnects after the first bytes of content; the backend then
    /// sends the rest.
    Leave(Request),
    /// Sends this many parallel requests while the backend holds the response.
    Together(Request, usize),
    /// Waits until lifetimes of one second, and one more second of stale use, have expired. This
    /// step is not numbered.
    Later,
}

/// Creates a sequence without responses or steps.
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

    /// Sets the fields of the 304 that belongs to the last response.
    pub(crate) fn not_modified(mut self, fields: &'static str) -> Self {
        self.last().not_modified = Some(fields);
        self
    }

    /// Makes the backend send the last response chunked.
    pub(crate) fn chunked(mut self) -> Self {
        self.last().form = Form::Chunked;
        self
    }

    /// Makes the backend close the connection.
    pub(crate) fn closed(mut self) -> Self {
        self = self.ok("", "");
        self.last().form = Form::Closed;
        self
    }

    /// Makes the last response break off after `length` bytes of content.
    pub(crate) fn breaks_off(mut self, length: usize) -> Self {
        self.last().form = Form::Broken(length);
        self
    }

    /// Makes the last response halt after `length` bytes of content.
    pub(crate) fn halts(mut self, length: usize) -> Self {
        self.last().form = Form::Halting(length);
        self
    }

    fn last(&mut self) -> &mut Answer {
        self.answers.last_mut().expect("modifiers follow the response that they modify")
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn get(self, fields: &'static str) -> Self {
        self.get_at("", fields)
    }

    pub(crate) fn get_at(self, tail: &'static str, fields: &'static str) -> Self {
        self.step(Step::Send(Request { method: "GET", tail, fields }))
    }

    pub(crate) fn head(self, fields: &'static str) -> Self {
        self.step(Step::Send(Request { method: "HEAD", tail: "", fields }))
    }

    /// Adds a request with an unsafe method and without content.
    pub(crate) fn change(self, method: &'static str) -> Self {
        self.step(Step::Send(Request { method, tail: "", fields: "Content-Length: 0" }))
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

    pub(crate) fn background(self) -> Self {
        self.background_fetching(1)
    }

    /// Like `background`, but with `count` requests to the backend.
    pub(crate) fn background_fetching(self, count: usize) -> Self {
        self.step(Step::Background(Request { method: "GET", tail: "", fields: "" }, count))
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
