//! What was measured: by case, side and metric, a value a turn.

use serde_json::{Map, Value, json};

/// The side whose figures the others are compared with.
pub(super) const OURS: &str = "setpoint";

/// Which way a metric is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    More,
    Less,
}

/// What is measured, in which unit.
#[derive(Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) better: Better,
}

/// All turns of one case on one side.
struct Row {
    case: String,
    side: String,
    values: Vec<(Metric, Vec<f64>)>,
}

/// Every figure of a run, in the order in which they came.
#[derive(Default)]
pub(super) struct Figures {
    rows: Vec<Row>,
}

impl Figures {
    /// Adds the figures of one turn.
    pub(super) fn add(&mut self, case: &str, side: &str, turn: &[(Metric, f64)]) {
        let at = self.rows.iter().position(|row| row.case == case && row.side == side);
        let at = at.unwrap_or_else(|| {
            self.rows.push(Row { case: case.to_owned(), side: side.to_owned(), values: Vec::new() });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        for (metric, value) in turn {
            match row.values.iter_mut().find(|(known, _)| known.name == metric.name) {
                Some((_, values)) => values.push(*value),
                None => row.values.push((*metric, vec![*value])),
            }
        }
    }

    /// A table: the median of each metric, its range, and how many times better we are.
    pub(super) fn print(&self) {
        for row in &self.rows {
            println!("{}, {}:", row.case, row.side);
            for (metric, values) in &row.values {
                let (low, middle, high) = spread(values);
                let ratio = self.ratio(row, *metric, middle);
                println!(
                    "    {:<24}{middle:>12.3} {:<6} ({low:.3} – {high:.3}){}",
                    metric.name,
                    metric.unit,
                    ratio.map(|times| format!("  setpoint is {times:.1} × better")).unwrap_or_default()
                );
            }
        }
    }

    /// How many times better our figure is than the one of this row.
    fn ratio(&self, row: &Row, metric: Metric, theirs: f64) -> Option<f64> {
        let ours = self.rows.iter().find(|other| other.case == row.case && other.side == OURS)?;
        let (_, values) = ours.values.iter().find(|(known, _)| known.name == metric.name)?;
        let (_, ours, _) = spread(values);
        let ratio = match metric.better {
            Better::More => ours / theirs,
            Better::Less => theirs / ours,
        };
        (row.side != OURS).then_some(ratio)
    }

    /// Every value of every turn.
    pub(super) fn to_json(&self) -> Value {
        let row = |row: &Row| {
            let metrics: Map<String, Value> = row
                .values
                .iter()
                .map(|(metric, values)| {
                    (metric.name.to_owned(), json!({"unit": metric.unit, "values": values}))
                })
                .collect();
            json!({"case": row.case, "side": row.side, "metrics": metrics})
        };
        self.rows.iter().map(row).collect()
    }
}

/// The least, the median, the most.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    (sorted[0], (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0, sorted[last])
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Metric = Metric { name: "rate", unit: "1/s", better: Better::More };
    const TIME: Metric = Metric { name: "time", unit: "ms", better: Better::Less };

    #[test]
    fn a_ratio_says_how_many_times_better_we_are() {
        let mut figures = Figures::default();
        for (ours, theirs) in [(10.0, 4.0), (30.0, 6.0), (20.0, 5.0)] {
            figures.add("c", OURS, &[(RATE, ours), (TIME, 1.0)]);
            figures.add("c", "peer", &[(RATE, theirs), (TIME, 8.0)]);
        }
        let peer = &figures.rows[1];
        assert_eq!(spread(&peer.values[0].1), (4.0, 5.0, 6.0));
        assert_eq!(figures.ratio(peer, RATE, 5.0), Some(4.0));
        assert_eq!(figures.ratio(peer, TIME, 8.0), Some(8.0));
        assert_eq!(figures.ratio(&figures.rows[0], RATE, 20.0), None);
    }

    #[test]
    fn the_median_of_an_even_number_of_turns_is_between_the_middle_two() {
        assert_eq!(spread(&[4.0, 1.0, 3.0, 2.0]), (1.0, 2.5, 4.0));
    }
}
