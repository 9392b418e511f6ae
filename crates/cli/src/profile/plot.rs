//! A profile as SVG: access times above, ratios below.
use penstock_device::Op;
use penstock_device::profile::Profile;
use plotters::coord::Shift;
use plotters::prelude::*;

type Error = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (900, 900);
const KIB: f64 = 1024.0;

/// The drawing.
pub fn draw(profile: &Profile) -> Result<String, Error> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(said)?;
        let (above, below) = area.split_vertically(SIZE.1 / 2);
        times(profile, &above)?;
        ratios(profile, &below)?;
        area.present().map_err(said)?;
    }
    Ok(svg)
}

/// The library's errors borrow the drawing area; this turns them into text.
fn said(error: impl std::fmt::Display) -> Error {
    error.to_string().into()
}

fn sizes(profile: &Profile) -> (f64, f64) {
    let all = profile.curves.iter().flat_map(|c| &c.estimated);
    let of = |s: u64| s as f64 / KIB;
    let low = all.clone().map(|p| of(p.0)).fold(f64::INFINITY, f64::min);
    (low, all.map(|p| of(p.0)).fold(low, f64::max))
}

/// Lines are estimates, circles measurements.
fn times(profile: &Profile, area: &Area) -> Result<(), Error> {
    let ms = |t: f64| (t / 1e6).max(1e-6);
    let (from, to) = sizes(profile);
    let all = profile
        .curves
        .iter()
        .flat_map(|c| c.estimated.iter().chain(&c.measured))
        .map(|p| ms(p.1));
    let low = all.clone().fold(f64::INFINITY, f64::min) * 0.8;
    let high = all.fold(low, f64::max) * 1.25;
    let mut chart = ChartBuilder::on(area)
        .caption(&profile.target, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d((from..to).log_scale(), (low..high).log_scale())
        .map_err(said)?;
    chart
        .configure_mesh()
        .x_desc("request size, KiB")
        .y_desc("access time, ms")
        .draw()
        .map_err(said)?;
    for (i, curve) in profile.curves.iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        let line = curve.estimated.iter().map(|p| (p.0 as f64 / KIB, ms(p.1)));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))
            .map_err(said)?
            .label(curve.test.name().replace('_', " "))
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], color));
        let full = curve.full.iter().flatten();
        let points = curve
            .measured
            .iter()
            .map(|p| (p, 4))
            .chain(full.map(|p| (p, 1)));
        chart
            .draw_series(
                points.map(|(p, r)| Circle::new((p.0 as f64 / KIB, ms(p.1)), r, color.filled())),
            )
            .map_err(said)?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .draw()
        .map_err(said)
}

fn ratios(profile: &Profile, area: &Area) -> Result<(), Error> {
    let (from, to) = sizes(profile);
    let high = profile.ratios.iter().map(|r| r.max).fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d((from..to).log_scale(), 0.0..high)
        .map_err(said)?;
    chart
        .configure_mesh()
        .x_desc("request size, KiB")
        .y_desc("sequential / random throughput")
        .draw()
        .map_err(said)?;
    for (i, summary) in profile.ratios.iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        let point = |size: u64, ratio: f64| (size as f64 / KIB, ratio);
        let line = summary.ratios.iter().map(|r| point(r.size, r.estimated));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))
            .map_err(said)?
            .label(match summary.op {
                Op::Read => "read",
                Op::Write => "write",
            })
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], color));
        let measured = summary
            .ratios
            .iter()
            .filter_map(|r| Some(point(r.size, r.full?.min(high))));
        chart
            .draw_series(measured.map(|p| Circle::new(p, 1, color.filled())))
            .map_err(said)?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .draw()
        .map_err(said)
}
