//! Results as Markdown tables, for a page of documentation.
use crate::experiment::Outcome;
use std::fmt::Write;

/// A number with three significant digits.
pub fn figure(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

impl Outcome {
    /// A section: the experiment, published beside simulated results, verdicts, differences.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "## {}\n\n{}\n", self.name, self.about.trim());
        if self.situations.is_empty() {
            self.cases_table(&mut out);
        } else {
            self.situations_table(&mut out);
        }
        if !self.comparisons.is_empty() {
            out.push_str(
                "\n| relation | published | ours | verdict |\n| --- | --- | --- | --- |\n",
            );
            for c in &self.comparisons {
                let _ = writeln!(
                    out,
                    "| {} | {} | {} | {} |",
                    c.claim,
                    c.published,
                    figure(c.ours),
                    c.verdict.words()
                );
            }
        }
        if !self.differences.trim().is_empty() {
            let _ = writeln!(out, "\n{}", self.differences.trim());
        }
        out
    }

    fn cases_table(&self, out: &mut String) {
        let published = self.cases.iter().any(|c| c.published.is_some());
        let head = if published { " published MB/s |" } else { "" };
        let line = if published { " --- |" } else { "" };
        let _ = writeln!(
            out,
            "| case |{head} ours MB/s | operations | device requests | mean seek |"
        );
        let _ = writeln!(out, "| --- |{line} --- | --- | --- | --- |");
        for case in &self.cases {
            let r = &case.report;
            let _ = write!(out, "| {} |", case.case);
            if published {
                let said = case.published.map_or("–".into(), figure);
                let _ = write!(out, " {said} |");
            }
            let _ = writeln!(
                out,
                " {} | {} | {} | {} MB |",
                figure(r.throughput / 1e6),
                r.operations,
                r.device_requests,
                figure(r.seek_distance / 1e6)
            );
        }
    }

    fn situations_table(&self, out: &mut String) {
        out.push_str(
            "| situation | published best | its gain here | best here, and within the tie | gain | agrees |\n\
             | --- | --- | --- | --- | --- | --- |\n",
        );
        for s in &self.situations {
            let _ = writeln!(
                out,
                "| {} | {} | {:+.0}% | {} | {:+.0}% | {} |",
                s.situation,
                s.published,
                (s.published_gain - 1.0) * 100.0,
                s.ours.join(", "),
                (s.gain - 1.0) * 100.0,
                if s.agrees { "yes" } else { "no" }
            );
        }
        let agree = self.situations.iter().filter(|s| s.agrees).count();
        let _ = writeln!(
            out,
            "\nThe source's choice is among ours in {agree} of {} situations; choices at random would be in {:.0}.",
            self.situations.len(),
            self.situations.iter().map(|s| s.chance).sum::<f64>()
        );
    }
}
