//! Colours, where somebody looks at a terminal.

use std::io::IsTerminal;

use super::report::COLUMN;

const BOLD: &str = "1";
const RED: &str = "31";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// A report of findings, as it is printed to standard error.
pub(crate) fn report(text: &str) -> String {
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        painted(text)
    } else {
        text.to_owned()
    }
}

fn painted(text: &str) -> String {
    let mut is_fault = false;
    let mut painted = String::new();
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        // What happens stands below this line, and is indented.
        is_fault = line.starts_with("With th") || (is_fault && line.starts_with("  "));
        let side = line.chars().nth(COLUMN.saturating_add(1));
        let colour = if line.starts_with("── ") {
            Some(BOLD)
        } else if line.contains('✗') || (is_fault && line.starts_with("  ")) {
            Some(RED)
        } else {
            match side {
                Some('<') => Some(YELLOW),
                Some('>') => Some(CYAN),
                _ => None,
            }
        };
        match colour {
            Some(colour) => painted.push_str(&format!("\x1b[{colour}m{line}\x1b[0m{end}")),
            None => painted.extend([line, end]),
        }
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_and_what_differs_have_colours_and_the_text_stays() {
        let row = |mark: char| format!("{:COLUMN$} {mark} b\n", "a");
        let text = format!(
            "── a test ──\nWith this fault:\n  crash\nwrong\n  why\n{}{}{}",
            row(' '),
            row('<'),
            row('>')
        );
        let painted = painted(&text);
        let lines: Vec<&str> = painted.lines().collect();
        assert_eq!(lines[0], "\x1b[1m── a test ──\x1b[0m");
        assert_eq!(lines[2], "\x1b[31m  crash\x1b[0m");
        assert_eq!(lines[4], "  why");
        let starts: Vec<_> = lines[5..].iter().map(|line| line.starts_with("\x1b[")).collect();
        assert_eq!(starts, [false, true, true]);
        let plain = [BOLD, RED, YELLOW, CYAN, "0"]
            .iter()
            .fold(painted.clone(), |text, colour| text.replace(&format!("\x1b[{colour}m"), ""));
        assert_eq!(plain, text);
    }
}
