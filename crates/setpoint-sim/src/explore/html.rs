//! A finding as one page for the browser.

use std::fmt::Write;

use super::Finding;
use super::story::{Line, Pair, Story};

const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:120em;padding:0 1em;color:#1c2833}\
h1{font-size:1.3em}h2{font-size:1.05em;margin-top:1.6em}pre{background:#f4f6f7;padding:.8em;overflow:auto}\
table{border-collapse:collapse;width:100%;table-layout:fixed}td{vertical-align:top;padding:.15em .5em;\
border-bottom:1px solid #e5e8e8;overflow-wrap:anywhere}td.t{width:6em;color:#7f8c8d;text-align:right;\
font-variant-numeric:tabular-nums}td.w{width:9em;color:#566573}tr.left td{background:#fdf2e9}tr.right td{background:#eaf2f8}\
.fault{color:#c0392b;font-weight:600}@media(prefers-color-scheme:dark){body{background:#17202a;color:#eaecee}\
pre{background:#212f3d}td{border-color:#2c3e50}tr.left td{background:#4a3320}tr.right td{background:#1b3a4f}\
.fault{color:#f1948a}}";

/// The whole page; it needs nothing else.
pub(crate) fn page(name: &str, finding: &Finding, without: &Story, with: &Story) -> String {
    let mut html = String::new();
    let _never = write(&mut html, name, finding, without, with);
    html
}

fn write(f: &mut String, name: &str, finding: &Finding, without: &Story, with: &Story) -> std::fmt::Result {
    let name_text = escape(name);
    write!(
        f,
        "<!doctype html><html lang=en><meta charset=utf-8><title>{name_text}</title><style>{STYLE}</style>"
    )?;
    write!(f, "<h1>{name_text}</h1><h2>What goes wrong on the way</h2><ul>")?;
    for fault in &finding.faults {
        write!(f, "<li class=fault>{}", escape(&fault.to_string()))?;
    }
    if finding.faults.is_empty() {
        f.push_str("<li>Nothing: it happens without any fault");
    }
    f.push_str("</ul><h2>What comes of it</h2>");
    for violation in &finding.violations {
        write!(f, "<p>{}<ul>", escape(&violation.oracle.to_string()))?;
        for why in &violation.why {
            write!(f, "<li>{}", escape(why))?;
        }
        f.push_str("</ul>");
    }
    f.push_str("<h2>Without faults, and with them</h2><table>");
    for pair in without.beside(with) {
        let (class, left, right) = match pair {
            Pair::Both(left, right) => ("both", Some(left), Some(right)),
            Pair::Left(left) => ("left", Some(left), None),
            Pair::Right(right) => ("right", None, Some(right)),
        };
        write!(f, "<tr class={class}>{}{}", cells(left), cells(right))?;
    }
    write!(f, "</table><h2>As a test</h2><pre>{}</pre></html>", escape(&finding.test))
}

fn cells(line: Option<&Line>) -> String {
    let Some(line) = line else { return "<td class=t><td class=w><td>".to_owned() };
    let class = if line.is_fault { " class=fault" } else { "" };
    let (at, who, what) = (line.at.as_secs_f64(), escape(&line.who), escape(&line.what));
    format!("<td class=t>{at:.3} s<td class=w>{who}<td{class}>{what}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
