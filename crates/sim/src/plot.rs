//! Plots of a run as SVG: throughput over time, where the first server's device stood, and that once more for a fifth of a
//! second in the middle, as the sources show it (RS figures 3.1 and 6.3).
use crate::report::Report;
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (900, 420);
/// Points of a throughput curve at most: more are noise.
const POINTS: usize = 128;
/// The part of a run that the closer look at the head shows.
const CLOSE: f64 = 0.2;

type Drawn = Result<String, Box<dyn Error + Send + Sync>>;

fn drawn<E: Error>(error: E) -> Box<dyn Error + Send + Sync> {
    error.to_string().into()
}

/// What a chart shows.
struct Chart {
    what: &'static str,
    unit: &'static str,
    points: Vec<(f64, f64)>,
    /// Seconds at its left and right end.
    time: (f64, f64),
    /// Marks of this radius instead of a line.
    dots: Option<i32>,
}

fn seconds(report: &Report) -> f64 {
    (report.makespan as f64 / 1e9).max(1e-9)
}

/// Throughput over time, MB/s over seconds.
pub fn throughput(report: &Report) -> Drawn {
    let line = &report.timeline;
    let joined = line.bytes.len().div_ceil(POINTS).max(1);
    let step = line.step as f64 / 1e9 * joined as f64;
    let points = line
        .bytes
        .chunks(joined)
        .enumerate()
        .map(|(i, bytes)| {
            // The last step ends with the run.
            let begin = i as f64 * step;
            let length = step.min(seconds(report) - begin).max(step / 100.0);
            let sum: u64 = bytes.iter().sum();
            (begin + length / 2.0, sum as f64 / 1e6 / length)
        })
        .collect();
    let time = (0.0, seconds(report));
    chart(
        report,
        &Chart {
            what: "throughput",
            unit: "MB/s",
            points,
            time,
            dots: None,
        },
    )
}

/// Addresses of device requests of the first server, GB over seconds.
pub fn head(report: &Report) -> Drawn {
    addresses(report, (0.0, seconds(report)), 1)
}

/// The same in the middle of the run.
pub fn head_close(report: &Report) -> Drawn {
    let end = seconds(report);
    let begin = (end - CLOSE).max(0.0) / 2.0;
    addresses(report, (begin, (begin + CLOSE).min(end)), 2)
}

fn addresses(report: &Report, time: (f64, f64), radius: i32) -> Drawn {
    let points = report
        .head
        .iter()
        .map(|(at, address)| (*at as f64 / 1e9, *address as f64 / 1e9))
        .filter(|(at, _)| (time.0..=time.1).contains(at))
        .collect();
    chart(
        report,
        &Chart {
            what: "device requests of server 0",
            unit: "address, GB",
            points,
            time,
            dots: Some(radius),
        },
    )
}

fn chart(report: &Report, chart: &Chart) -> Drawn {
    let points = &chart.points;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(drawn)?;
        let span = |f: fn(f64, f64) -> f64, from: f64| points.iter().map(|p| p.1).fold(from, f);
        let top = span(f64::max, 0.0).max(1e-9);
        let low = match chart.dots {
            Some(_) => span(f64::min, f64::MAX).min(top),
            None => 0.0,
        };
        let margin = ((top - low) * 0.05).max(1e-9);
        let below = if chart.dots.is_some() { margin } else { 0.0 };
        let mut drawing = ChartBuilder::on(&area)
            .caption(
                format!("{}: {}", report.name, chart.what),
                ("sans-serif", 18),
            )
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
        match chart.dots {
            Some(radius) => {
                let marks = points
                    .iter()
                    .map(|p| Circle::new(*p, radius, BLUE.filled()));
                drawing.draw_series(marks).map_err(drawn)?;
            }
            None => {
                let line = LineSeries::new(points.iter().copied(), BLUE.stroke_width(2));
                drawing.draw_series(line).map_err(drawn)?;
            }
        }
        area.present().map_err(drawn)?;
    }
    Ok(svg)
}
