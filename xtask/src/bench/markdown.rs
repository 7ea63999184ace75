//! The figures as tables of the documentation.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};

use super::figures::{Figures, Row, Series};

/// The tables: a name, and what the names of their cases begin with or hold.
const TABLES: [(&str, &str); 16] = [
    ("informer", "informer of"),
    ("lookups", "lookups in"),
    ("growth", "growth from"),
    ("queue", "queue,"),
    ("start", "start"),
    ("ceiling", "encoded beforehand"),
    ("aggregation", "aggregation:"),
    ("operations", " by "),
    ("disk", "the disk"),
    ("fan-out", " watchers, "),
    ("stored", " stored"),
    ("lists", "list of"),
    ("e2e", "e2e on"),
    ("in-process", "in one process"),
    ("scale", "scale:"),
    ("cluster", " Deployments"),
];

/// The plots that stand before tables.
const PICTURES: [(&str, &str); 3] = [
    (
        "informer",
        "![Time and CPU to sync, memory, events a second: Setpoint, client-go, kube-rs](img/informer.svg)",
    ),
    (
        "start",
        "![Creates, CPU a create, start, memory: Setpoint beside kube-apiserver and etcd](img/apiserver.svg)",
    ),
    (
        "e2e",
        "![From a change to its reconcile: Setpoint, controller-runtime, kube-rs, a bare watch, on both servers](img/e2e.svg)",
    ),
];

fn table_of(row: &Row) -> Option<&'static str> {
    TABLES.iter().find(|(_, part)| row.case.contains(part)).map(|(name, _)| *name)
}

/// All tables, each under its name.
pub(super) fn all(figures: &Figures) -> String {
    let tables = TABLES.iter().map(|(name, _)| (name, table(figures, name)));
    tables.filter_map(|(name, table)| Some(format!("### {name}\n\n{}\n", table?))).collect()
}

/// Replaces the tables of a page, which stand between `<!-- figures: NAME -->` and `<!-- end -->`. Those without
/// figures stay as they are.
pub(super) fn fill(page: &str, figures: &Figures, with_plots: bool) -> Result<String> {
    const END: &str = "<!-- end -->";
    let mut filled = page.to_owned();
    for (name, _) in TABLES {
        let (begin, Some(table)) = (format!("<!-- figures: {name} -->\n"), table(figures, name)) else {
            continue;
        };
        let Some(at) = filled.find(&begin).map(|at| at + begin.len()) else { continue };
        let length = filled[at..].find(END).with_context(|| format!("the table {name} has no end"))?;
        ensure!(!filled[at..at + length].contains("<!-- figures:"), "the table {name} has no end");
        let picture = PICTURES.iter().find(|(of, _)| with_plots && *of == name);
        let picture = picture.map(|(_, line)| format!("{line}\n\n")).unwrap_or_default();
        filled.replace_range(at..at + length, &format!("{picture}{table}"));
    }
    Ok(filled)
}

/// One line a case and side, one column a metric.
fn table(figures: &Figures, name: &str) -> Option<String> {
    let mut rows: Vec<&Row> = figures.rows().iter().filter(|row| table_of(row) == Some(name)).collect();
    let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    rows.sort_by_key(|row| cases.iter().position(|case| *case == row.case));
    let mut columns: Vec<&Series> = Vec::new();
    for series in rows.iter().flat_map(|row| &row.series) {
        if !columns.iter().any(|known| known.name == series.name) {
            columns.push(series);
        }
    }
    let first = rows.first()?;
    let is_one_case = rows.iter().all(|row| row.case == first.case);
    let mut text = format!("| {} |", if is_one_case { &first.case } else { "" });
    for column in &columns {
        let _ = write!(text, " {} |", column.name);
    }
    text.push_str("\n| --- |");
    text.push_str(&" ---: |".repeat(columns.len()));
    text.push('\n');
    for row in rows {
        let label = if is_one_case { row.side.clone() } else { format!("{}: {}", row.case, row.side) };
        let _ = write!(text, "| {label} |");
        for column in &columns {
            let cell = row.series(&column.name).map(|series| cell(figures, row, series));
            let _ = write!(text, " {} |", cell.unwrap_or_default());
        }
        text.push('\n');
    }
    Some(text)
}

fn cell(figures: &Figures, row: &Row, series: &Series) -> String {
    let ratio = figures.ratio(row, series).map(|times| format!(" ({times:.1} ×)")).unwrap_or_default();
    let unit = match series.unit.as_str() {
        "" | "exponent" => String::new(),
        unit if unit.starts_with('/') => unit.to_owned(),
        unit => format!(" {unit}"),
    };
    format!("{}{unit}{ratio}", number(series.median()))
}

/// Three digits that matter, and commas between thousands.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        small if small < 0.000_5 => 0,
        small if small < 0.1 => 3,
        small if small < 10.0 => 2,
        small if small < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), ""), |(whole, part)| (whole, part));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::super::figures::{OURS, less};
    use super::*;

    #[test]
    fn a_table_of_a_page_is_replaced_and_the_rest_stays() {
        let mut figures = Figures::default();
        figures.add("start", OURS, &[(less("time", "ms"), 21.0)]);
        figures.add("start", "peer", &[(less("time", "ms"), 2100.0)]);
        let page =
            "a\n<!-- figures: start -->\nold\n<!-- end -->\nb\n<!-- figures: queue -->\nkept\n<!-- end -->\n";
        let filled = fill(page, &figures, false).unwrap();
        let table =
            "| start | time |\n| --- | ---: |\n| setpoint | 21.0 ms |\n| peer | 2,100 ms (100.0 ×) |\n";
        assert_eq!(filled, page.replace("old\n", table));
    }

    #[test]
    fn numbers_have_three_digits_that_matter() {
        assert_eq!([0.153, 3.0, 21.44, 1_234_567.8].map(number), ["0.15", "3.00", "21.4", "1,234,568"]);
    }
}
