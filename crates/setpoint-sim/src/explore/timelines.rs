//! A finding as data: both timelines, for the page that walks through them.

use serde_json::{Value, json};

use super::Finding;
use super::story::{Line, Pair, Story};

/// The run without faults and the run with them, side by side, as JSON.
pub(crate) fn json(name: &str, finding: &Finding, without: &Story, with: &Story) -> String {
    let rows: Vec<Value> = without.beside(with).into_iter().map(row).collect();
    let violation =
        |violation: &super::Violation| json!({"oracle": violation.oracle.to_string(), "why": violation.why});
    json!({
        "name": name,
        "faults": finding.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "violations": finding.violations.iter().map(violation).collect::<Vec<_>>(),
        "rows": rows,
        "test": finding.test,
    })
    .to_string()
}

fn row(pair: Pair<'_>) -> Value {
    let (without, with) = match pair {
        Pair::Both(left, right) => (Some(left), Some(right)),
        Pair::Left(left) => (Some(left), None),
        Pair::Right(right) => (None, Some(right)),
    };
    json!({"without": without.map(line), "with": with.map(line)})
}

fn line(line: &Line) -> Value {
    json!({"seconds": line.at.as_secs_f64(), "who": &*line.who, "what": line.what, "isFault": line.is_fault})
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_row_has_what_both_runs_tell_or_one_of_them() {
        let line = |what: &str, is_fault| Line {
            at: Duration::from_millis(1500),
            who: "foo".into(),
            what: what.to_owned(),
            is_fault,
        };
        let without = Story { lines: vec![line("creates a", false)] };
        let with = Story { lines: vec![line("creates a", false), line("lost <it>", true)] };
        let finding = Finding::new(&[], Vec::new(), 1);
        let report: Value = serde_json::from_str(&json("a test", &finding, &without, &with)).unwrap();
        let told = json!({"seconds": 1.5, "who": "foo", "what": "creates a", "isFault": false});
        assert_eq!(report["rows"][0], json!({"without": told, "with": told}));
        assert_eq!(report["rows"][1]["without"], Value::Null);
        assert_eq!(report["rows"][1]["with"]["what"], "lost <it>");
        assert_eq!(report["rows"][1]["with"]["isFault"], true);
    }
}
