//! Lines on standard error, up to a level.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

pub use crate::options::LogLevel as Level;

static SHOWN: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// From now on, shows lines that are as important as `level`, or more.
pub fn show(level: Level) {
    SHOWN.store(level as u8, Ordering::Relaxed);
}

/// Whether a line of this level would be shown. To be asked before gathering what is costly.
pub fn shows(level: Level) -> bool {
    level as u8 <= SHOWN.load(Ordering::Relaxed)
}

/// Writes one line. If nobody reads standard error, that is no reason to end.
pub fn say(level: Level, text: Arguments<'_>) {
    if shows(level) {
        let _ = writeln!(std::io::stderr().lock(), "ri2n-reorder: {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_shown_down_to_the_chosen_one() {
        assert!(shows(Level::Error) && shows(Level::Info) && !shows(Level::Debug));
    }
}
