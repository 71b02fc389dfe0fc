// SPDX-License-Identifier: Apache-2.0
//! Lines on standard error, up to a level: one event is one line, as text or as JSON.
//!
//! What comes from the network and from the kernel may hold any character. Those that cannot be
//! printed are written as escapes, so no event becomes two lines, and none changes a terminal. Each
//! place in the code may say so much at once, and so much later on. What is left out is counted,
//! and told as "N more like this".

use std::collections::BTreeMap;
use std::fmt::{Arguments, Write as _};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

pub use crate::options::{LogFormat as Format, LogLevel as Level};
use crate::{sys, Nanos};

/// So many lines a place in the code may write at once. Later it may write one per [`REFILL`].
pub const BURST: u64 = 200;
/// How long it takes until a place that has written all may write one more line.
pub const REFILL: Nanos = 500_000_000;
/// What was left out is told at the latest after this time.
pub const TELL: Nanos = 10_000_000_000;
/// So many characters of a message are kept.
pub const MAX_TEXT: usize = 8192;

const MAX_TRACE_LINES: usize = 100;
const NAME: &str = "ri2n-reorder";
const LOGGER: &str = "ri2n.reorder";

static LINES: Mutex<Lines> = Mutex::new(Lines::new(Level::Info, Format::Text));

/// A place in the code that says something.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The source file, as `file!()` has it.
    pub file: &'static str,
    /// The line in that file.
    pub line: u32,
    /// The text without its values: the same for all events of this place.
    pub template: &'static str,
}

/// Writes one line, if its level is shown: `say!(Level::Warn, "NIC {} is down", name)`.
#[macro_export]
macro_rules! say {
    ($level:expr, $template:literal $(, $value:expr)* $(,)?) => {
        $crate::run::log::write(
            $level,
            $crate::run::log::Place { file: file!(), line: line!(), template: $template },
            format_args!($template $(, $value)*),
        )
    };
}
pub use crate::say;

/// From now on, shows lines that are as important as `level`, or more, in this form.
pub fn show(level: Level, format: Format) {
    let mut lines = locked();
    (lines.shown, lines.format) = (level, format);
}

/// Writes one line. If nobody reads standard error, that is no reason to end.
pub fn write(level: Level, place: Place, text: Arguments<'_>) {
    let mut lines = locked();
    let text = lines.event(level, place, text, sys::now(), unix_time());
    put(&text);
}

/// Writes the state of the whole program, which somebody has asked for.
pub fn write_state(state: &Value) {
    let text = locked().state(state, unix_time());
    put(&text);
}

/// Says what was left out long ago. To be called every few seconds.
pub fn tell_late(now: Nanos) {
    let text = locked().tell(now, unix_time(), TELL);
    put(&text);
}

/// Says all that was left out: the process ends.
pub fn tell_all() {
    let text = locked().tell(sys::now(), unix_time(), 0);
    put(&text);
}

/// From now on, a panic is one event as well: it names the place, and has a trace where
/// `RUST_BACKTRACE` asks for one.
pub fn take_panics() {
    std::panic::set_hook(Box::new(|info| {
        let said = info.payload();
        let text = said.downcast_ref::<&str>().copied();
        let text = text.or_else(|| said.downcast_ref::<String>().map(String::as_str));
        let (file, line) = info.location().map_or(("?", 0), |place| (place.file(), place.line()));
        let trace = std::backtrace::Backtrace::capture();
        let trace = match trace.status() {
            std::backtrace::BacktraceStatus::Captured => trace.to_string(),
            _ => String::new(),
        };
        // The panic may come from here, and the lock be held.
        let format = match LINES.try_lock() {
            Ok(lines) => lines.format,
            Err(TryLockError::Poisoned(lines)) => lines.into_inner().format,
            Err(TryLockError::WouldBlock) => Format::Text,
        };
        let event = Event {
            level: Level::Error,
            message: format!(
                "it has failed, which is a mistake in the program: {}",
                printable(text.unwrap_or("?"))
            ),
            r#where: where_of(file, line),
            trace: trace.lines().take(MAX_TRACE_LINES).map(printable).collect(),
            ..Event::default()
        };
        put(&event.line(format, unix_time()));
    }));
}

/// How events become lines, and how many of each place. It knows no clock and writes nothing.
#[derive(Debug)]
pub struct Lines {
    shown: Level,
    format: Format,
    budgets: BTreeMap<(&'static str, u32), Budget>,
}

impl Lines {
    /// Shows lines that are as important as `shown`, or more.
    pub const fn new(shown: Level, format: Format) -> Self {
        Lines { shown, format, budgets: BTreeMap::new() }
    }

    /// The lines for one event, each with its end; none where the level is not shown, or where the
    /// place has said too much. `now` is the monotonic time, `unix` the time since 1970.
    pub fn event(
        &mut self,
        level: Level,
        place: Place,
        text: Arguments<'_>,
        now: Nanos,
        unix: Duration,
    ) -> String {
        if level > self.shown {
            return String::new();
        }
        let budget = self.budgets.entry((place.file, place.line)).or_insert(Budget::new(now));
        if !budget.take(now) {
            if budget.left_out == 0 {
                (budget.level, budget.since) = (level, now);
                budget.example = printable(&text.to_string());
            }
            budget.left_out += 1;
            return String::new();
        }
        let mut lines = budget.tell(self.format, unix);
        let event = Event {
            level,
            message: printable(&text.to_string()),
            r#where: where_of(place.file, place.line),
            template: Some(place.template).filter(|template| says_something(template)),
            ..Event::default()
        };
        lines.push_str(&event.line(self.format, unix));
        lines
    }

    /// The lines that tell what was left out for `age` or longer.
    pub fn tell(&mut self, now: Nanos, unix: Duration, age: Nanos) -> String {
        let old = |budget: &&mut Budget| now.saturating_sub(budget.since) >= age;
        let format = self.format;
        self.budgets.values_mut().filter(old).map(|budget| budget.tell(format, unix)).collect()
    }

    /// The line that has the state of the program.
    pub fn state(&self, state: &Value, unix: Duration) -> String {
        match self.format {
            Format::Text => format!("{NAME}: {}\n", ascii(&state.to_string())),
            Format::Json => Event {
                level: Level::Info,
                message: "the state of the helper, as SIGUSR1 asks for it".to_string(),
                state: Some(state),
                ..Event::default()
            }
            .line(Format::Json, unix),
        }
    }
}

/// How much one place may still say, and how many of its lines were left out.
#[derive(Debug)]
struct Budget {
    /// What is left, as the time in which it would come back.
    credit: Nanos,
    filled: Nanos,
    left_out: u64,
    since: Nanos,
    level: Level,
    example: String,
}

impl Budget {
    fn new(now: Nanos) -> Self {
        Budget {
            credit: BURST * REFILL,
            filled: now,
            left_out: 0,
            since: now,
            level: Level::Error,
            example: String::new(),
        }
    }

    /// Whether one more line may be written.
    fn take(&mut self, now: Nanos) -> bool {
        let grown = self.credit.saturating_add(now.saturating_sub(self.filled));
        (self.credit, self.filled) = (grown.min(BURST * REFILL), now);
        let enough = self.credit >= REFILL;
        if enough {
            self.credit -= REFILL;
        }
        enough
    }

    /// The line that tells what was left out, if something was.
    fn tell(&mut self, format: Format, unix: Duration) -> String {
        let count = std::mem::take(&mut self.left_out);
        if count == 0 {
            return String::new();
        }
        let example = std::mem::take(&mut self.example);
        let message = format!("{count} more like this: {example}");
        let event = Event { level: self.level, message, left_out: count, ..Event::default() };
        event.line(format, unix)
    }
}

/// One event. Its texts are printable.
#[derive(Debug)]
struct Event<'a> {
    level: Level,
    message: String,
    r#where: String,
    template: Option<&'static str>,
    left_out: u64,
    trace: Vec<String>,
    state: Option<&'a Value>,
}

impl Default for Event<'_> {
    fn default() -> Self {
        Event {
            level: Level::Error,
            message: String::new(),
            r#where: String::new(),
            template: None,
            left_out: 0,
            trace: Vec::new(),
            state: None,
        }
    }
}

impl Event<'_> {
    /// The event as a line, with its end. In the form `text`, a trace follows in lines of its own,
    /// none of which looks like an event.
    fn line(self, format: Format, unix: Duration) -> String {
        if format == Format::Text {
            let mut text = format!("{NAME}: {}\n", self.message);
            for line in &self.trace {
                let _ = writeln!(text, "    | {line}");
            }
            return text;
        }
        let mut fields = vec![
            ("time", Value::from(sys::utc(unix))),
            ("level", level_name(self.level).into()),
            ("logger", LOGGER.into()),
            ("message", self.message.into()),
        ];
        if !self.r#where.is_empty() {
            fields.push(("where", self.r#where.into()));
        }
        if let Some(template) = self.template {
            fields.push(("template", template.into()));
        }
        if self.left_out > 0 {
            fields.push(("left_out", self.left_out.into()));
        }
        if !self.trace.is_empty() {
            fields.push(("trace", self.trace.into()));
        }
        let mut fields: Vec<String> =
            fields.into_iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
        if let Some(state) = self.state {
            fields.push(format!("\"state\": {state}"));
        }
        format!("{}\n", ascii(&format!("{{{}}}", fields.join(", "))))
    }
}

/// The names that the controller's log has (ri2n_sdn/logs.py).
fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
    }
}

/// Whether a template has words of its own, and is not one value alone.
fn says_something(template: &str) -> bool {
    !(template.starts_with('{') && template.find('}') == Some(template.len() - 1))
}

fn where_of(file: &str, line: u32) -> String {
    format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
}

/// A text on one line, of bounded length, with all that cannot be printed as escapes.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_TEXT));
    for c in text.chars().take(MAX_TEXT) {
        let shown = matches!(c, '\\' | '\'' | '"') || c.escape_debug().len() == 1;
        let _ = match (c, u32::from(c)) {
            ('\n', _) => write!(out, "\\n"),
            ('\r', _) => write!(out, "\\r"),
            ('\t', _) => write!(out, "\\t"),
            _ if shown => write!(out, "{c}"),
            (_, code @ 0..=0xff) => write!(out, "\\x{code:02x}"),
            (_, code @ 0..=0xffff) => write!(out, "\\u{code:04x}"),
            (_, code) => write!(out, "\\U{code:08x}"),
        };
    }
    let left = text.chars().skip(MAX_TEXT).count();
    if left > 0 {
        let _ = write!(out, "... ({left} characters more)");
    }
    out
}

/// JSON in ASCII alone. All other characters are inside of its strings, where an escape means the
/// same.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() && c != '\x7f' {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

fn locked() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Writes whole lines at once, so that the lines of a guard are not inside of them.
fn put(text: &str) {
    if !text.is_empty() {
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests;
