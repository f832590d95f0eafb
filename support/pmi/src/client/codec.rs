//! The encoding of requests and the decoding of replies. One request can be outstanding at a time.

use crate::wire::{self, Line, MAX_KEY, MAX_KVSNAME, MAX_REQUEST, MAX_VALUE, format, quoted};

/// A rank's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Join the job. This is the first request.
    Init,
    /// Ask for the launcher's limits.
    Maxes,
    /// Ask for the name of the key-value space. Puts and gets are possible only afterwards.
    KvsName,
    /// Ask for the maximum number of processes that could run.
    UniverseSize,
    /// Ask for this program's number among the programs that were launched together.
    AppNum,
    /// Store a pair, which the other ranks can get after a barrier.
    Put {
        /// The key: at most `keylen_max - 1` bytes, never used before in the job.
        key: &'a str,
        /// The value: at most `vallen_max - 1` bytes without blanks.
        value: &'a str,
    },
    /// Fetch a pair.
    Get {
        /// The key.
        key: &'a str,
    },
    /// Wait until all ranks have made this request.
    Barrier,
    /// Leave the job. This is the last request.
    Finalize,
}

impl Request<'_> {
    /// Returns the request's name for error messages.
    pub fn name(&self) -> &'static str {
        match self {
            Request::Init => "init",
            Request::Maxes => "get_maxes",
            Request::KvsName => "get_my_kvsname",
            Request::UniverseSize => "get_universe_size",
            Request::AppNum => "get_appnum",
            Request::Put { .. } => "put",
            Request::Get { .. } => "get",
            Request::Barrier => "barrier",
            Request::Finalize => "finalize",
        }
    }
}

/// The launcher's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// The reply to [`Request::Init`], [`Request::Put`], [`Request::Barrier`] and
    /// [`Request::Finalize`] if they succeed.
    Done,
    /// The reply to [`Request::Maxes`].
    Maxes(Maxes),
    /// The reply to [`Request::KvsName`].
    KvsName(String),
    /// The reply to [`Request::UniverseSize`] and [`Request::AppNum`]; -1 if the launcher does not
    /// know.
    Number(i64),
    /// The reply to [`Request::Get`].
    Value(String),
}

/// The launcher's limits in bytes, each including the terminating zero of a C string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maxes {
    /// The limit for the name of the key-value space.
    pub kvsname: usize,
    /// The limit for a key.
    pub key: usize,
    /// The limit for a value.
    pub value: usize,
}

/// An impossible request or an invalid reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The line cannot be formatted or parsed.
    #[error(transparent)]
    Line(#[from] wire::Error),
    /// The launcher replied to another command.
    #[error("the launcher answered with {got} instead of {expected:?}")]
    Unexpected {
        /// The expected command.
        expected: &'static str,
        /// The command received, quoted and truncated.
        got: String,
    },
    /// A reply arrived while no request was outstanding.
    #[error("the launcher sent the unsolicited reply {0}")]
    Unasked(String),
    /// The launcher's `rc` is not 0.
    #[error("the launcher refused: {reason} (rc={rc})")]
    Refused {
        /// The launcher's code.
        rc: i64,
        /// The launcher's message, quoted and truncated.
        reason: String,
    },
    /// The request comes at the wrong time: before init, after finalize, or while a reply is
    /// outstanding.
    #[error("not possible {0}")]
    OutOfOrder(&'static str),
    /// A key, value or request is longer than the launcher accepts.
    #[error("a {what} of {length} bytes is longer than the launcher's limit of {limit}")]
    TooLong {
        /// `"key"`, `"value"` or `"request"`.
        what: &'static str,
        /// The length, in bytes, of the key, value or request.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CodecState {
    New,
    Ready,
    Finalized,
}

/// The outstanding request. It has no key or value, because decoding the reply does not need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Init,
    Maxes,
    KvsName,
    UniverseSize,
    AppNum,
    Put,
    Get,
    Barrier,
    Finalize,
}

/// The state machine for one rank's exchange with its launcher.
///
/// ```
/// use pmi::client::{Codec, Request, Response};
/// let mut codec = Codec::new();
/// assert_eq!(codec.request(Request::Init)?, "cmd=init pmi_version=1 pmi_subversion=1\n");
/// let answer = codec.response("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1")?;
/// assert_eq!(answer, Response::Done);
/// # Ok::<(), pmi::client::CodecError>(())
/// ```
#[derive(Debug)]
pub struct Codec {
    state: CodecState,
    awaited: Option<Awaited>,
    maxes: Maxes,
    kvsname: Option<String>,
}

impl Default for Codec {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec {
    /// Creates a codec for a connection on which no request has been sent.
    pub fn new() -> Self {
        let maxes = Maxes {
            kvsname: MAX_KVSNAME,
            key: MAX_KEY,
            value: MAX_VALUE,
        };
        Codec {
            state: CodecState::New,
            awaited: None,
            maxes,
            kvsname: None,
        }
    }

    /// Returns the launcher's limits, or PMI-1's usual ones until the launcher has sent them. They
    /// never exceed those of [`crate::wire`].
    pub fn maxes(&self) -> Maxes {
        self.maxes
    }

    /// Returns the line to send, including the newline. Send it in one write, because Slurm takes
    /// one request from each read.
    ///
    /// # Errors
    /// Returns an error if the request comes at the wrong time, or its key or value cannot be
    /// encoded.
    pub fn request(&mut self, request: Request<'_>) -> Result<String, CodecError> {
        if self.awaited.is_some() {
            return Err(CodecError::OutOfOrder(
                "while the reply to another request is outstanding",
            ));
        }
        match (self.state, request) {
            (CodecState::New, Request::Init) | (CodecState::Ready, _) => {}
            (CodecState::New, _) => return Err(CodecError::OutOfOrder("before init")),
            (CodecState::Finalized, _) => {
                return Err(CodecError::OutOfOrder("after finalize or abort"));
            }
        }
        let (awaited, line) = match request {
            Request::Init => {
                let fields = [("pmi_version", "1"), ("pmi_subversion", "1")];
                (Awaited::Init, format("init", &fields)?)
            }
            Request::Maxes => (Awaited::Maxes, format("get_maxes", &[])?),
            Request::KvsName => (Awaited::KvsName, format("get_my_kvsname", &[])?),
            Request::UniverseSize => (Awaited::UniverseSize, format("get_universe_size", &[])?),
            Request::AppNum => (Awaited::AppNum, format("get_appnum", &[])?),
            Request::Put { key, value } => {
                fits("key", key, self.maxes.key)?;
                fits("value", value, self.maxes.value)?;
                let fields = [("kvsname", self.kvsname()?), ("key", key), ("value", value)];
                (Awaited::Put, format("put", &fields)?)
            }
            Request::Get { key } => {
                fits("key", key, self.maxes.key)?;
                (
                    Awaited::Get,
                    format("get", &[("kvsname", self.kvsname()?), ("key", key)])?,
                )
            }
            Request::Barrier => (Awaited::Barrier, format("barrier_in", &[])?),
            Request::Finalize => (Awaited::Finalize, format("finalize", &[])?),
        };
        fits("request", &line, MAX_REQUEST + 1)?;
        self.awaited = Some(awaited);
        Ok(line)
    }

    /// Decodes the reply to the outstanding request.
    ///
    /// # Errors
    /// No request is outstanding, the line is malformed or replies to another command, or the
    /// launcher refuses.
    pub fn response(&mut self, line: &str) -> Result<Response, CodecError> {
        let Some(awaited) = self.awaited.take() else {
            return Err(CodecError::Unasked(quoted(line)));
        };
        let line = Line::parse(line)?;
        let expected = match awaited {
            Awaited::Init => "response_to_init",
            Awaited::Maxes => "maxes",
            Awaited::KvsName => "my_kvsname",
            Awaited::UniverseSize => "universe_size",
            Awaited::AppNum => "appnum",
            Awaited::Put => "put_result",
            Awaited::Get => "get_result",
            Awaited::Barrier => "barrier_out",
            Awaited::Finalize => "finalize_ack",
        };
        if line.command() != expected {
            return Err(CodecError::Unexpected {
                expected,
                got: quoted(line.command()),
            });
        }
        // Not every launcher sends `rc` in every reply. If it is absent, the request has succeeded.
        let rc = if line.get("rc").is_some() {
            line.number("rc")?
        } else {
            0
        };
        if rc != 0 {
            let reason = quoted(line.get("msg").unwrap_or("no reason given"));
            return Err(CodecError::Refused { rc, reason });
        }
        Ok(match awaited {
            Awaited::Init => {
                self.state = CodecState::Ready;
                Response::Done
            }
            Awaited::Maxes => {
                self.maxes = Maxes {
                    kvsname: line.number::<usize>("kvsname_max")?.min(MAX_KVSNAME),
                    key: line.number::<usize>("keylen_max")?.min(MAX_KEY),
                    value: line.number::<usize>("vallen_max")?.min(MAX_VALUE),
                };
                Response::Maxes(self.maxes)
            }
            Awaited::KvsName => {
                let name = line.require("kvsname")?;
                self.kvsname = Some(name.to_owned());
                Response::KvsName(name.to_owned())
            }
            Awaited::UniverseSize => Response::Number(line.number("size")?),
            Awaited::AppNum => Response::Number(line.number("appnum")?),
            Awaited::Get => Response::Value(line.require("value")?.to_owned()),
            Awaited::Finalize => {
                self.state = CodecState::Finalized;
                Response::Done
            }
            Awaited::Put | Awaited::Barrier => Response::Done,
        })
    }

    /// Returns the line that asks the launcher to end the job with `code`. There is no reply to it,
    /// and no request may follow it. Blanks and characters that PMI cannot carry become `_` in the
    /// message, which is truncated to 512 characters.
    pub fn abort(&mut self, code: i32, message: &str) -> String {
        const MAX_MESSAGE: usize = 512;
        self.state = CodecState::Finalized;
        let mut line = format!("cmd=abort exitcode={code}");
        if !message.is_empty() {
            line.push_str(" message=");
            let message = message
                .chars()
                .map(|c| if c.is_ascii_graphic() { c } else { '_' });
            line.extend(message.take(MAX_MESSAGE));
        }
        line.push('\n');
        line
    }

    /// Returns the maximum length in bytes of a value that can be put under the longest key.
    pub(super) fn longest_value(&self) -> usize {
        let kvsname = self.kvsname.as_deref().unwrap_or_default();
        let rest = "cmd=put kvsname= key= value=\n".len() + kvsname.len() + MAX_KEY;
        self.maxes
            .value
            .min((MAX_REQUEST + 1).saturating_sub(rest))
            .saturating_sub(1)
    }

    fn kvsname(&self) -> Result<&str, CodecError> {
        self.kvsname.as_deref().ok_or(CodecError::OutOfOrder(
            "before the name of the key-value space is known",
        ))
    }
}

/// Checks that the text fits into `max` bytes as a C string, that is, with a terminating zero.
fn fits(what: &'static str, text: &str, max: usize) -> Result<(), CodecError> {
    let (length, limit) = (text.len(), max.saturating_sub(1));
    if length > limit {
        Err(CodecError::TooLong {
            what,
            length,
            limit,
        })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
