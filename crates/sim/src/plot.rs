//! Plots of a run as SVG: throughput over time, and where the first server's device stood.
use crate::report::Report;
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (900, 420);

type Drawn = Result<String, Box<dyn Error + Send + Sync>>;

fn drawn<E: Error>(error: E) -> Box<dyn Error + Send + Sync> {
    error.to_string().into()
}

/// Throughput over time, MB/s over seconds.
pub fn throughput(report: &Report) -> Drawn {
    let line = &report.timeline;
    let seconds = line.step as f64 / 1e9;
    let points: Vec<(f64, f64)> = line
        .bytes
        .iter()
        .enumerate()
        .map(|(i, bytes)| ((i as f64 + 0.5) * seconds, *bytes as f64 / 1e6 / seconds))
        .collect();
    chart(report, "throughput", "MB/s", &points, false)
}

/// Addresses of device requests of the first server, GB over seconds.
pub fn head(report: &Report) -> Drawn {
    let points: Vec<(f64, f64)> = report
        .head
        .iter()
        .map(|(at, address)| (*at as f64 / 1e9, *address as f64 / 1e9))
        .collect();
    chart(
        report,
        "device requests of server 0",
        "address, GB",
        &points,
        true,
    )
}

fn chart(report: &Report, what: &str, unit: &str, points: &[(f64, f64)], dots: bool) -> Drawn {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(drawn)?;
        let end = (report.makespan as f64 / 1e9).max(1e-9);
        let span = |f: fn(f64, f64) -> f64, from: f64| points.iter().map(|p| p.1).fold(from, f);
        let top = span(f64::max, 0.0).max(1e-9);
        let low = if dots {
            span(f64::min, f64::MAX).min(top)
        } else {
            0.0
        };
        let margin = ((top - low) * 0.05).max(1e-9);
        let mut chart = ChartBuilder::on(&area)
            .caption(format!("{}: {what}", report.name), ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(
                0.0..end,
                (low - if dots { margin } else { 0.0 })..top + margin,
            )
            .map_err(drawn)?;
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc(unit)
            .draw()
            .map_err(drawn)?;
        if dots {
            let marks = points.iter().map(|p| Circle::new(*p, 1, BLUE.filled()));
            chart.draw_series(marks).map_err(drawn)?;
        } else {
            let line = LineSeries::new(points.iter().copied(), &BLUE);
            chart.draw_series(line).map_err(drawn)?;
        }
        area.present().map_err(drawn)?;
    }
    Ok(svg)
}
