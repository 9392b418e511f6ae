//! Figures as Prometheus reads them: its text format 0.0.4, and OpenMetrics 1.0.
//!
//! The two differ in what a counter is called where it is described, and in how the text ends. *Source*: OpenMetrics 1.0 (the draft
//! of the IETF); Prometheus, exposition formats.
use std::fmt::Write as _;

/// Characters of a label's value.
const VALUE: usize = 64;

/// In which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// 0.0.4.
    Text,
    /// 1.0.
    OpenMetrics,
}

impl Form {
    /// The one that the asker takes.
    pub fn accepted(accept: &str) -> Form {
        if accept.contains("application/openmetrics-text") {
            Form::OpenMetrics
        } else {
            Form::Text
        }
    }

    /// Its name.
    pub fn kind(self) -> &'static str {
        match self {
            Form::Text => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// Figures of one name.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: Vec<(String, f64)>,
}

impl Family {
    /// What only grows. The name has no `_total`.
    pub fn counter(name: &'static str, help: &'static str) -> Family {
        Family {
            name,
            kind: Kind::Counter,
            help,
            samples: Vec::new(),
        }
    }

    /// What is now.
    pub fn gauge(name: &'static str, help: &'static str) -> Family {
        Family {
            kind: Kind::Gauge,
            ..Family::counter(name, help)
        }
    }

    /// Adds a figure with these labels.
    pub fn put(&mut self, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.len() {
            0 => String::new(),
            _ => format!("{{{}}}", labels.join(",")),
        };
        self.samples.push((labels, value));
    }

    fn render(&self, form: Form, out: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        let (kind, total) = match self.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
        };
        let name = self.name;
        let described = match form {
            Form::Text => format!("{name}{total}"),
            Form::OpenMetrics => name.to_owned(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP {described} {}", self.help);
        let _ = writeln!(out, "# TYPE {described} {kind}");
        let unit = ["bytes", "seconds"]
            .into_iter()
            .find(|unit| name.ends_with(&format!("_{unit}")));
        if let (Some(unit), Form::OpenMetrics) = (unit, form) {
            let _ = writeln!(out, "# UNIT {described} {unit}");
        }
        for (labels, value) in &self.samples {
            let _ = writeln!(out, "{name}{total}{labels} {value}");
        }
    }
}

/// All of them.
pub fn render(families: &[Family], form: Form) -> String {
    let mut out = String::new();
    for family in families {
        family.render(form, &mut out);
    }
    if form == Form::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

/// A label's value, bounded and as the format wants it. Texts from elsewhere are printable already; a control character is one of
/// nobody's.
fn escaped(value: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    let short: String = value.chars().take(VALUE).map(shown).collect();
    short.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_what_their_readers_expect() {
        let mut bytes = Family::counter("penstock_server_bytes", "Bytes moved.");
        bytes.put(&[("server", "data-0"), ("op", "read")], 12.0);
        let mut up = Family::gauge("penstock_server_up", "Whether it answers.");
        up.put(&[], 1.0);
        let none = Family::gauge("penstock_nothing", "Nothing.");
        let families = [bytes, up, none];
        let text = render(&families, Form::accepted("text/plain"));
        assert_eq!(
            text,
            "# HELP penstock_server_bytes_total Bytes moved.\n# TYPE penstock_server_bytes_total counter\n\
             penstock_server_bytes_total{server=\"data-0\",op=\"read\"} 12\n\
             # HELP penstock_server_up Whether it answers.\n# TYPE penstock_server_up gauge\npenstock_server_up 1\n"
        );
        let open = Form::accepted("application/openmetrics-text;version=1.0.0,*/*;q=0.1");
        let open = render(&families, open);
        assert!(open.contains("# TYPE penstock_server_bytes counter\n# UNIT penstock_server_bytes bytes\npenstock_server_bytes_total{"));
        assert!(open.ends_with("\n# EOF\n"));
    }

    #[test]
    fn a_label_holds_any_text() {
        let mut jobs = Family::counter("penstock_job_bytes", "Bytes.");
        jobs.put(
            &[("job", "a\"b\\c\n\u{1b}[2J"), ("user", &"x".repeat(1000))],
            0.5,
        );
        let text = render(&[jobs], Form::Text);
        let (line, _) = text.lines().last().unwrap().split_once(",user=").unwrap();
        assert_eq!(line, r#"penstock_job_bytes_total{job="a\"b\\c??[2J""#);
        assert_eq!(text.lines().count(), 3);
        assert!(text.len() < 300);
    }
}
