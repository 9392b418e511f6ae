//! Lines over an axis, as SVG.
use crate::error::{CliError, Result};
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (900, 450);

/// One drawing.
pub struct Drawing<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Names and points of the lines.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Both axes are logarithmic.
    pub logarithmic: bool,
}

/// Writes it to a file.
pub fn write(path: &Path, drawing: &Drawing<'_>) -> Result<()> {
    let svg = draw(drawing).map_err(|e| CliError::new(format!("cannot draw: {e}")))?;
    std::fs::write(path, svg).map_err(|e| CliError::io("write", path, e))
}

type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The library's errors borrow the drawing area; this turns them into text.
fn said(error: impl std::fmt::Display) -> Box<dyn std::error::Error> {
    error.to_string().into()
}

fn draw(drawing: &Drawing<'_>) -> Drawn<String> {
    let points = || drawing.lines.iter().flat_map(|l| &l.1);
    let least = |f: fn(&(f64, f64)) -> f64| points().map(f).fold(f64::INFINITY, f64::min);
    let most = |f: fn(&(f64, f64)) -> f64| points().map(f).fold(0.0, f64::max);
    let (from, to) = (least(|p| p.0), most(|p| p.0));
    let top = most(|p| p.1) * 1.1;
    if !(from.is_finite() && to > from && top > 0.0) {
        return Err(said("fewer than two points"));
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(said)?;
        let mut builder = ChartBuilder::on(&area);
        builder
            .caption(drawing.title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(64);
        // The two kinds of axes are different types, so this is a macro.
        macro_rules! series {
            ($chart:expr) => {{
                let mut chart = $chart.map_err(said)?;
                chart
                    .configure_mesh()
                    .x_desc(drawing.x)
                    .y_desc(drawing.y)
                    .draw()
                    .map_err(said)?;
                for (i, (name, points)) in drawing.lines.iter().enumerate() {
                    let color = Palette99::pick(i).to_rgba();
                    let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
                    chart
                        .draw_series(line)
                        .map_err(said)?
                        .label(name)
                        .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], color));
                }
                chart
                    .configure_series_labels()
                    .background_style(WHITE.mix(0.8))
                    .draw()
                    .map_err(said)?;
            }};
        }
        if drawing.logarithmic {
            let low = least(|p| p.1).max(top / 1e6) * 0.8;
            series!(builder.build_cartesian_2d((from..to).log_scale(), (low..top).log_scale()));
        } else {
            series!(builder.build_cartesian_2d(from..to, 0.0..top));
        }
        area.present().map_err(said)?;
    }
    Ok(svg)
}
