//! What was measured: by case, side and metric, a value a turn.

use anyhow::{Context, Result};
use serde_json::{Value, json};

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

/// A metric that is better when it is less.
pub(super) const fn less(name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit, better: Better::Less }
}

/// All turns of one case on one side.
pub(super) struct Row {
    pub(super) case: String,
    pub(super) side: String,
    pub(super) series: Vec<Series>,
}

/// One metric, turn by turn.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) unit: String,
    better: Better,
    values: Vec<f64>,
}

impl Series {
    pub(super) fn median(&self) -> f64 {
        spread(&self.values).1
    }
}

impl Row {
    pub(super) fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }
}

/// Every figure of a run, in the order in which they came.
#[derive(Default)]
pub(super) struct Figures {
    rows: Vec<Row>,
}

impl Figures {
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Adds the figures of one turn.
    pub(super) fn add(&mut self, case: &str, side: &str, turn: &[(Metric, f64)]) {
        for (metric, value) in turn {
            self.series(case, side, metric.name, metric.unit, metric.better).values.push(*value);
        }
    }

    fn series(&mut self, case: &str, side: &str, name: &str, unit: &str, better: Better) -> &mut Series {
        let at = self.rows.iter().position(|row| row.case == case && row.side == side);
        let at = at.unwrap_or_else(|| {
            self.rows.push(Row { case: case.to_owned(), side: side.to_owned(), series: Vec::new() });
            self.rows.len() - 1
        });
        let series = &mut self.rows[at].series;
        let at = series.iter().position(|known| known.name == name);
        let at = at.unwrap_or_else(|| {
            let (name, unit) = (name.to_owned(), unit.to_owned());
            series.push(Series { name, unit, better, values: Vec::new() });
            series.len() - 1
        });
        &mut series[at]
    }

    /// The median of each metric, its range, and how many times better we are.
    pub(super) fn print(&self) {
        for row in &self.rows {
            println!("{}, {}:", row.case, row.side);
            for series in &row.series {
                let (low, middle, high) = spread(&series.values);
                let ratio = self.ratio(row, series);
                println!(
                    "    {:<24}{middle:>12.3} {:<6} ({low:.3} – {high:.3}){}",
                    series.name,
                    series.unit,
                    ratio.map(|times| format!("  setpoint is {times:.1} × better")).unwrap_or_default()
                );
            }
        }
    }

    /// How many times better our figure is than the one of this row.
    pub(super) fn ratio(&self, row: &Row, series: &Series) -> Option<f64> {
        let ours = self.rows.iter().find(|other| other.case == row.case && other.side == OURS)?;
        let (ours, theirs) = (ours.series(&series.name)?.median(), series.median());
        let ratio = match series.better {
            Better::More => ours / theirs,
            Better::Less => theirs / ours,
        };
        (!row.side.starts_with(OURS) && ratio.is_finite()).then_some(ratio)
    }

    /// Adds how figures grow with the number in the names of their cases: `PREFIX 1000 Pods`. An exponent of 1 is as
    /// fast as the number itself.
    pub(super) fn add_growth(&mut self, prefix: &str, sides: &[&str]) {
        let number =
            |row: &Row| row.case.strip_prefix(prefix)?.split_whitespace().next()?.parse::<f64>().ok();
        let mut growth = Vec::new();
        for side in sides {
            let of_side = self.rows.iter().filter(|row| row.side == *side);
            let mut rows: Vec<_> = of_side.filter_map(|row| Some((number(row)?, row))).collect();
            rows.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            for pair in rows.windows(2) {
                let [(few, before), (many, after)] = pair else { continue };
                let case = format!("growth from {few} to {many} Pods");
                for series in &before.series {
                    let Some(later) = after.series(&series.name) else { continue };
                    let exponent = (later.median() / series.median()).ln() / (many / few).ln();
                    growth.push((case.clone(), *side, series.name.clone(), exponent));
                }
            }
        }
        for (case, side, name, exponent) in growth.into_iter().filter(|growth| growth.3.is_finite()) {
            self.series(&case, side, &name, "exponent", Better::Less).values.push(exponent);
        }
    }

    /// Every value of every turn.
    pub(super) fn to_json(&self) -> Value {
        let metric = |series: &Series| {
            let better = if series.better == Better::More { "more" } else { "less" };
            json!({"name": series.name, "unit": series.unit, "better": better, "values": series.values})
        };
        let row = |row: &Row| {
            let metrics: Vec<Value> = row.series.iter().map(metric).collect();
            json!({"case": row.case, "side": row.side, "metrics": metrics})
        };
        self.rows.iter().map(row).collect()
    }

    /// Adds what `to_json` wrote.
    pub(super) fn add_json(&mut self, json: &Value) -> Result<()> {
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text is missing");
        for row in json.as_array().context("figures are an array")? {
            let (case, side) = (text(&row["case"])?, text(&row["side"])?);
            for metric in row["metrics"].as_array().context("metrics are an array")? {
                let better = if metric["better"] == "more" { Better::More } else { Better::Less };
                let (name, unit) = (text(&metric["name"])?, text(&metric["unit"])?);
                let values = metric["values"].as_array().context("values are an array")?;
                let values = values.iter().filter_map(Value::as_f64);
                self.series(&case, &side, &name, &unit, better).values.extend(values);
            }
        }
        Ok(())
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
        assert_eq!(spread(&peer.series[0].values), (4.0, 5.0, 6.0));
        assert_eq!(figures.ratio(peer, &peer.series[0]), Some(4.0));
        assert_eq!(figures.ratio(peer, &peer.series[1]), Some(8.0));
        let ours = &figures.rows[0];
        assert_eq!(figures.ratio(ours, &ours.series[0]), None);
    }

    #[test]
    fn figures_are_read_as_they_are_written() {
        let mut figures = Figures::default();
        figures.add("c", OURS, &[(RATE, 1.5), (TIME, 2.0)]);
        figures.add("c", OURS, &[(RATE, 2.5), (TIME, 3.0)]);
        let mut read = Figures::default();
        read.add_json(&figures.to_json()).unwrap();
        assert_eq!(read.to_json(), figures.to_json());
    }

    #[test]
    fn what_doubles_with_the_number_grows_with_exponent_one() {
        let mut figures = Figures::default();
        figures.add("informer of 1000 Pods", OURS, &[(TIME, 3.0)]);
        figures.add("informer of 2000 Pods", OURS, &[(TIME, 6.0)]);
        figures.add_growth("informer of", &[OURS]);
        let row = &figures.rows[2];
        assert_eq!(row.case, "growth from 1000 to 2000 Pods");
        assert_eq!(row.series[0].values, [1.0]);
    }

    #[test]
    fn the_median_of_an_even_number_of_turns_is_between_the_middle_two() {
        assert_eq!(spread(&[4.0, 1.0, 3.0, 2.0]), (1.0, 2.5, 4.0));
    }
}
