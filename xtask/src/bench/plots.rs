//! Bars of ours beside the peers', as SVG.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::figures::{Figures, OURS};
use super::markdown::number;

const WIDTH: f64 = 760.0;
const PANEL: f64 = WIDTH / 2.0;
/// Where bars begin, and how long the longest is.
const LEFT: f64 = 150.0;
const LONGEST: f64 = 150.0;
const BAR: f64 = 22.0;
const HEAD: f64 = 40.0;

/// A picture: its file, and its panels.
struct Plot {
    file: &'static str,
    panels: &'static [Panel],
}

/// Bars of one metric in the first case whose name begins so.
struct Panel {
    title: &'static str,
    case: &'static str,
    metric: &'static str,
    /// Which sides, and what they are called.
    sides: &'static [(&'static str, &'static str)],
}

const INFORMERS: &[(&str, &str)] = &[
    (OURS, "Setpoint"),
    ("setpoint, protobuf", "Setpoint, protobuf"),
    ("setpoint, compact", "Setpoint, compact"),
    ("client-go, protobuf", "client-go, protobuf"),
    ("client-go, protobuf, list", "the same, listed"),
    ("client-go, JSON, list", "client-go, JSON"),
    ("kube-rs, managedFields dropped, list", "kube-rs"),
];
const SERVERS: &[(&str, &str)] = &[(OURS, "Setpoint"), ("kube-apiserver", "kube-apiserver, etcd")];
const CONTROLLERS: &[(&str, &str)] = &[
    (OURS, "Setpoint"),
    ("controller-runtime", "controller-runtime"),
    ("kube-rs", "kube-rs"),
    ("a bare watch", "a bare watch"),
];

const fn panel(
    title: &'static str,
    case: &'static str,
    metric: &'static str,
    sides: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, case, metric, sides }
}

const PLOTS: [Plot; 3] = [
    Plot {
        file: "informer.svg",
        panels: &[
            panel("Time to sync (less is better)", "informer of 100000", "time to sync", INFORMERS),
            panel("CPU to sync (less is better)", "informer of 100000", "CPU to sync", INFORMERS),
            panel(
                "Resident after the events (less is better)",
                "informer of 100000",
                "RSS after events",
                INFORMERS,
            ),
            panel("Events a second (more is better)", "informer of 100000", "events", INFORMERS),
        ],
    },
    Plot {
        file: "apiserver.svg",
        panels: &[
            panel("Creates, 16 connections (more is better)", "create by 16", "operations", SERVERS),
            panel("Server CPU a create (less is better)", "create by 16", "server CPU an operation", SERVERS),
            panel("Exec to first create (less is better)", "start", "exec → first create", SERVERS),
            panel("Resident, 170,000 objects (less is better)", "50000 Pods and", "resident", SERVERS),
        ],
    },
    Plot {
        file: "e2e.svg",
        panels: &[
            panel(
                "Change to reconcile, p50, on Setpoint",
                "e2e on setpoint",
                "change → reconcile p50",
                CONTROLLERS,
            ),
            panel(
                "Change to reconcile, p99, on Setpoint",
                "e2e on setpoint",
                "change → reconcile p99",
                CONTROLLERS,
            ),
            panel("p50, on kube-apiserver", "e2e on kube-apiserver", "change → reconcile p50", CONTROLLERS),
            panel("p99, on kube-apiserver", "e2e on kube-apiserver", "change → reconcile p99", CONTROLLERS),
        ],
    },
];

/// Draws every plot that there are figures for.
pub(super) fn draw(figures: &Figures, folder: &Path) -> Result<()> {
    for plot in PLOTS {
        match picture(figures, plot.panels) {
            Some(svg) => {
                fs::write(folder.join(plot.file), svg)?;
                println!("drew {}", folder.join(plot.file).display());
            }
            None => println!("skipped {}: figures are missing", plot.file),
        }
    }
    Ok(())
}

/// Two panels a line, those that there are figures for.
fn picture(figures: &Figures, panels: &[Panel]) -> Option<String> {
    let panels = panels.iter().map(|panel| (panel, bars(figures, panel)));
    let panels: Vec<(&Panel, Vec<Bar>)> = panels.filter(|(_, bars)| !bars.is_empty()).collect();
    let lines = panels.iter().map(|(_, bars)| bars.len()).max()?;
    let panel_height = HEAD + lines as f64 * BAR + 12.0;
    let height = panels.len().div_ceil(2) as f64 * panel_height;
    // A ground of its own, so that it can be read on dark pages too.
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"ui-sans-serif,system-ui,sans-serif\" font-size=\"12\" fill=\"#1f2328\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"#fff\"/>\n"
    );
    for (index, (panel, bars)) in panels.iter().enumerate() {
        let (x, y) = ((index % 2) as f64 * PANEL, (index / 2) as f64 * panel_height);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        let _ = writeln!(svg, "<text x=\"16\" y=\"26\" font-weight=\"600\">{}</text>", panel.title);
        draw_bars(&mut svg, bars);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

struct Bar {
    name: &'static str,
    value: f64,
    unit: String,
    is_ours: bool,
}

fn bars(figures: &Figures, panel: &Panel) -> Vec<Bar> {
    let bar = |(side, name): &(&'static str, &'static str)| {
        let row = figures.rows().iter().find(|row| row.case.starts_with(panel.case) && row.side == *side)?;
        let series = row.series(panel.metric)?;
        Some(Bar { name, value: series.median(), unit: series.unit.clone(), is_ours: side.starts_with(OURS) })
    };
    panel.sides.iter().filter_map(bar).collect()
}

fn draw_bars(svg: &mut String, bars: &[Bar]) {
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    for (index, bar) in bars.iter().enumerate() {
        let y = HEAD + index as f64 * BAR;
        let length = (bar.value / most * LONGEST).max(1.0);
        let color = if bar.is_ours { "#1f6feb" } else { "#8c959f" };
        let unit = if bar.unit.starts_with('/') { bar.unit.clone() } else { format!(" {}", bar.unit) };
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"16\" rx=\"2\" fill=\"{color}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}{unit}</text>",
            LEFT - 8.0,
            y + 12.5,
            bar.name,
            LEFT + length + 6.0,
            y + 12.5,
            number(bar.value),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::less;
    use super::*;

    #[test]
    fn the_longest_bar_is_the_largest_value() {
        let mut figures = Figures::default();
        figures.add("start of it", OURS, &[(less("time", "ms"), 20.0)]);
        figures.add("start of it", "kube-apiserver", &[(less("time", "ms"), 2000.0)]);
        let svg = picture(&figures, &[panel("Start", "start", "time", SERVERS)]).unwrap();
        assert!(svg.contains("width=\"150.0\"") && svg.contains("width=\"1.5\""), "{svg}");
        assert!(svg.contains(">2,000 ms<"), "{svg}");
        assert!(picture(&figures, &[panel("Start", "start", "memory", SERVERS)]).is_none());
    }
}
