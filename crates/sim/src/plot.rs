//! Plots of a run as SVG. They show throughput over time, and the head position of the first server's device. A second
//! plot of the head has a fifth of a second in the middle, as in the sources (RS figures 3.1 and 6.3).
use crate::report::Report;
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (900, 420);
/// Most runs in one plot: more cannot be told apart.
pub const TOGETHER: usize = 8;
/// Most points of a throughput curve: more are noise.
const POINTS: usize = 128;
/// Seconds of the run in the detailed plot of the head.
const CLOSE: f64 = 0.2;

/// An SVG document.
pub type Drawn = Result<String, Box<dyn Error + Send + Sync>>;

fn drawn<E: Error>(error: E) -> Box<dyn Error + Send + Sync> {
    error.to_string().into()
}

/// The contents of a chart.
struct Chart {
    what: &'static str,
    unit: &'static str,
    /// Series with their names, for the legend; a single one has no name.
    series: Vec<(String, Vec<(f64, f64)>)>,
    /// Seconds at the left and right edges.
    time: (f64, f64),
    /// Marks of this radius instead of a line.
    dots: Option<i32>,
}

fn seconds(report: &Report) -> f64 {
    (report.makespan as f64 / 1e9).max(1e-9)
}

/// Throughput over time, MB/s over seconds.
pub fn throughput(name: &str, report: &Report) -> Drawn {
    throughputs(name, &[(String::new(), report)])
}

/// The same for several runs with their names in one plot, at most [`TOGETHER`].
pub fn throughputs(name: &str, runs: &[(String, &Report)]) -> Drawn {
    let runs = runs.iter().take(TOGETHER);
    let end = runs.clone().map(|(_, report)| seconds(report));
    let time = (0.0, end.fold(0.0, f64::max));
    let series = runs.map(|(name, report)| (name.clone(), rates(report)));
    let series = series.collect();
    chart(
        name,
        &Chart {
            what: "throughput",
            unit: "MB/s",
            series,
            time,
            dots: None,
        },
    )
}

/// (seconds, MB/s)
fn rates(report: &Report) -> Vec<(f64, f64)> {
    let line = &report.timeline;
    let joined = line.bytes.len().div_ceil(POINTS).max(1);
    let step = line.step as f64 / 1e9 * joined as f64;
    line.bytes
        .chunks(joined)
        .enumerate()
        .map(|(i, bytes)| {
            // The last step ends with the run.
            let begin = i as f64 * step;
            let length = step.min(seconds(report) - begin).max(step / 100.0);
            let sum: u64 = bytes.iter().sum();
            (begin + length / 2.0, sum as f64 / 1e6 / length)
        })
        .collect()
}

/// Addresses of device requests of the first server, GB over seconds.
pub fn head(name: &str, report: &Report) -> Drawn {
    addresses(name, report, (0.0, seconds(report)), 1)
}

/// The same in the middle of the run.
pub fn head_close(name: &str, report: &Report) -> Drawn {
    let end = seconds(report);
    let begin = (end - CLOSE).max(0.0) / 2.0;
    addresses(name, report, (begin, (begin + CLOSE).min(end)), 2)
}

fn addresses(name: &str, report: &Report, time: (f64, f64), radius: i32) -> Drawn {
    let points = report
        .head
        .iter()
        .map(|(at, address)| (*at as f64 / 1e9, *address as f64 / 1e9))
        .filter(|(at, _)| (time.0..=time.1).contains(at))
        .collect();
    chart(
        name,
        &Chart {
            what: "device requests of server 0",
            unit: "address, GB",
            series: vec![(String::new(), points)],
            time,
            dots: Some(radius),
        },
    )
}

fn chart(name: &str, chart: &Chart) -> Drawn {
    let points = chart.series.iter().flat_map(|(_, points)| points);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(drawn)?;
        let span = |f: fn(f64, f64) -> f64, from: f64| points.clone().map(|p| p.1).fold(from, f);
        let top = span(f64::max, 0.0).max(1e-9);
        let low = match chart.dots {
            Some(_) => span(f64::min, f64::MAX).min(top),
            None => 0.0,
        };
        let margin = ((top - low) * 0.05).max(1e-9);
        let below = if chart.dots.is_some() { margin } else { 0.0 };
        let mut drawing = ChartBuilder::on(&area)
            .caption(format!("{name}: {}", chart.what), ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(chart.time.0..chart.time.1, low - below..top + margin)
            .map_err(drawn)?;
        drawing
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(BLACK.mix(0.15))
            .x_desc("seconds")
            .y_desc(chart.unit)
            .draw()
            .map_err(drawn)?;
        for (k, (name, points)) in chart.series.iter().enumerate() {
            let colour = match chart.series.len() {
                1 => BLUE.to_rgba(),
                _ => Palette99::pick(k).to_rgba(),
            };
            let points = points.iter().copied();
            let drawn_series = match chart.dots {
                Some(radius) => {
                    drawing.draw_series(points.map(|p| Circle::new(p, radius, colour.filled())))
                }
                None => drawing.draw_series(LineSeries::new(points, colour.stroke_width(2))),
            };
            let drawn_series = drawn_series.map_err(drawn)?;
            if !name.is_empty() {
                drawn_series.label(name).legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                });
            }
        }
        if chart.series.len() > 1 {
            drawing
                .configure_series_labels()
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .draw()
                .map_err(drawn)?;
        }
        area.present().map_err(drawn)?;
    }
    Ok(svg)
}
