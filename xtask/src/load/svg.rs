//! Line charts, as small as they can be.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 26.0;
const COLORS: [&str; 3] = ["#0b6e99", "#d9730d", "#6940a5"];

/// One chart: its title, and lines over the same seconds.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) lines: Vec<(&'a str, Vec<f64>)>,
}

/// Charts below each other, over `seconds`.
pub(crate) fn draw(charts: &[Chart<'_>], seconds: &[f64]) -> String {
    let height = charts.len() as f64 * HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (index, chart) in charts.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", index as f64 * HEIGHT);
        draw_one(&mut svg, chart, seconds);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_one(svg: &mut String, chart: &Chart<'_>, seconds: &[f64]) {
    let last = seconds.last().copied().unwrap_or(1.0).max(1.0);
    let most = chart.lines.iter().flat_map(|(_, values)| values).copied().fold(1.0, f64::max);
    let top = round_up(most);
    let (width, height) = (WIDTH - LEFT - 16.0, HEIGHT - TOP - BOTTOM);
    let x = |second: f64| LEFT + second / last * width;
    let y = |value: f64| TOP + height - value / top * height;
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"16\" font-size=\"13\">{}</text>", chart.title);
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let (at, end) = (y(value), LEFT + width);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{end}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            LEFT - 6.0,
            at + 4.0
        );
        let second = last * f64::from(step) / 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{second:.0} s</text>",
            x(second),
            HEIGHT - 8.0
        );
    }
    for (index, (name, values)) in chart.lines.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let points: Vec<String> = seconds
            .iter()
            .zip(values)
            .map(|(second, value)| format!("{:.1},{:.1}", x(*second), y(*value)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" points=\"{}\"/>",
            points.join(" ")
        );
        let at = LEFT + width - 150.0 * (chart.lines.len() - 1 - index) as f64;
        let _ = writeln!(svg, "<text x=\"{at}\" y=\"16\" text-anchor=\"end\" fill=\"{color}\">{name}</text>");
    }
}

/// 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|top| *top >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_lines_and_a_round_scale() {
        let chart = Chart { title: "memory", lines: vec![("MiB", vec![0.0, 40.0, 83.0])] };
        let svg = draw(&[chart], &[0.0, 1.0, 2.0]);
        assert!(
            svg.contains(">memory<") && svg.contains(">100<") && svg.contains("points=\"64.0,194.0"),
            "{svg}"
        );
    }
}
