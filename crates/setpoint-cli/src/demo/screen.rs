//! The terminal, or the pipe.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use super::stage::{Notice, Stage};

/// Writes lines. On a terminal they have colours, and a line at the end says what is waited for.
pub(crate) struct Screen {
    is_terminal: bool,
    has_colours: bool,
    waits: bool,
}

const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";
/// To the beginning of the line, and clear it.
const CLEAR: &str = "\r\x1b[K";

impl Screen {
    pub(crate) fn new(waits: bool) -> Screen {
        let is_terminal = std::io::stdout().is_terminal();
        let has_colours = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Screen { is_terminal, has_colours, waits }
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        if self.has_colours { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }

    /// A line by itself.
    pub(crate) fn line(&self, text: &str) {
        let clear = if self.is_terminal { CLEAR } else { "" };
        self.write(&format!("{clear}{text}\n"));
    }

    pub(crate) fn title(&self, text: &str) {
        self.line(&self.coloured(BOLD, text));
    }

    /// The beginning of a step. Waits for Enter if that is wanted.
    pub(crate) fn begin(&self, number: usize, text: &str) -> std::io::Result<()> {
        self.line("");
        self.title(&format!("{number}. {text}"));
        if self.waits {
            self.write(&self.coloured(DIM, "   press Enter"));
            tokio::task::block_in_place(|| std::io::stdin().lock().read_line(&mut String::new()))?;
        }
        Ok(())
    }

    /// Something was seen, so long after the step began.
    pub(crate) fn notice(&self, notice: &Notice, after: Duration) {
        let time = self.coloured(DIM, &format!("{:>6} ms", after.as_millis()));
        let colour = if notice.stage == Stage::Object { BOLD } else { CYAN };
        let stage = self.coloured(colour, &format!("{:<11}", notice.stage.name()));
        self.line(&format!("{time}  {stage}  {}", notice.text));
    }

    pub(crate) fn done(&self, text: &str, after: Duration) {
        let time = self.coloured(DIM, &format!("{:>6} ms", after.as_millis()));
        self.line(&format!("{time}  {}", self.coloured(GREEN, &format!("{:<11}  {text}", "done"))));
    }

    pub(crate) fn failed(&self, text: &str) {
        self.line(&self.coloured(RED, text));
    }

    /// What is waited for, on a terminal; in a pipe nobody watches it.
    pub(crate) fn waiting(&self, text: &str, turn: usize) {
        const SIGNS: [char; 8] = ['⣾', '⣽', '⣻', '⢿', '⡿', '⣟', '⣯', '⣷'];
        if self.is_terminal {
            let text = self.coloured(DIM, &format!("           {} {text}", SIGNS[turn % SIGNS.len()]));
            self.write(&format!("{CLEAR}{text}"));
        }
    }

    fn write(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        // Whether somebody reads it does not change what happened.
        let _closed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}
