//! `penstock check`: compares names with objects and reports what is wrong.
use crate::connect;
use crate::deployment;
use crate::error::{CliError, Result};
use crate::out;
use crate::size;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};
use penstock_client::{CheckOptions, CheckReport, FindingKind, check as run_check};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Compare names with objects: find what a crash left behind, and what is missing.
///
/// Exit code 0: nothing found, or all of it repaired. 1: something is wrong.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Free the space of objects whose file is gone, and correct wrong numbers of users' files and bytes.
    #[arg(long)]
    pub repair: bool,
    /// Free objects that the metadata store never knew, too. If that store is an older copy or a new one, these objects
    /// may be all that is left of their files.
    #[arg(long)]
    pub free_unknown: bool,
    /// Free objects without a file even if they are more than 16, and more than one in a hundred objects. So many point
    /// to lost names rather than to a crash: first make sure that the metadata are the newest.
    #[arg(long)]
    pub free_many: bool,
    /// Accept damaged objects as they are, so that their files can be used again. Such objects were cut short, have an
    /// unreadable record, or could not be synced. Missing bytes are lost for good: first copy what can be read.
    #[arg(long)]
    pub accept_damaged: bool,
    /// Accept this file as it is; may be repeated. Bytes that a data server has lost read as zeros, or as in the older
    /// copy that `--new-store` accepted as new. Checks nothing else.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["repair", "free_unknown", "free_many", "accept_damaged", "json"])]
    pub accept_lost: Vec<String>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// Checks shorter than this show no progress.
const SILENT: Duration = Duration::from_secs(2);

/// Checks the deployment. Exit code 1 if something is wrong and was not mended.
pub fn check(args: &CheckArgs, named: Option<&Path>) -> Result<ExitCode> {
    let client = connect::administrator(&deployment::find(named)?)?;
    if !args.accept_lost.is_empty() {
        for path in &args.accept_lost {
            let path = path.strip_prefix("penstock:").unwrap_or(path);
            penstock_client::accept_lost(&client, path).map_err(CliError::new)?;
            out::print(&format!("{path}: accepted as it is\n"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let options = CheckOptions {
        repair: args.repair || args.free_unknown || args.free_many,
        free_unknown: args.free_unknown,
        free_many: args.free_many,
        accept_damaged: args.accept_damaged,
        ..CheckOptions::default()
    };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    let start = Instant::now();
    let report = run_check(&client, &options, &mut |so_far| {
        if bar.is_hidden() && start.elapsed() > SILENT {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_message(counts(so_far));
        bar.tick();
    })
    .map_err(CliError::new)?;
    bar.finish_and_clear();
    if args.json {
        out::print_json(&report);
    } else {
        out::print(&to_text(&report, args.repair));
    }
    Ok(if report.clean && report.complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn counts(report: &CheckReport) -> String {
    format!(
        "{} files, {} directories, {} objects ({})",
        size::count(report.files),
        size::count(report.directories),
        size::count(report.objects),
        size::bytes(report.object_bytes)
    )
}

fn to_text(report: &CheckReport, repair: bool) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let mended = if finding.mended { "mended: " } else { "" };
        text += &format!("{mended}{}\n", finding.message);
    }
    if report.more_findings > 0 {
        text += &format!("and {} more\n", size::count(report.more_findings));
    }
    text += &counts(report);
    let verdict = match (report.clean, report.complete) {
        (true, true) if report.findings.is_empty() => "nothing is wrong",
        (true, true) => "everything found was repaired",
        (_, false) => "incomplete: not all servers could be asked",
        (false, true) => "something is wrong",
    };
    text += &format!(": {verdict}\n");
    if report.uncompared > 0 {
        text += &format!(
            "not compared: bytes of {} users on data servers, which changed or were being counted; check again while their programs do no I/O\n",
            size::count(report.uncompared)
        );
    }
    if report.freed > 0 {
        text += &format!(
            "freed {} objects, {}\n",
            size::count(report.freed),
            size::bytes(report.freed_bytes)
        );
    }
    if report.held_back > 0 {
        text += &format!(
            "{} objects without a file are more than a crash leaves: if no names are lost, `penstock check --repair --free-many` frees them\n",
            size::count(report.held_back)
        );
    } else if report.orphans > 0 && report.freed == 0 && !repair {
        text += &format!(
            "`penstock check --repair` frees {} objects without a file, {}\n",
            size::count(report.orphans),
            size::bytes(report.orphan_bytes)
        );
    }
    let damaged = report.findings.iter().filter(|f| {
        let kind = matches!(
            f.kind,
            FindingKind::TruncatedObject | FindingKind::DamagedRecord
        );
        kind && !f.mended
    });
    let damaged = damaged.count() as u64;
    if damaged > 0 {
        text += &format!(
            "`penstock check --accept-damaged` accepts {} damaged objects as they are: copy or restore their files first\n",
            size::count(damaged)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_ends_with_what_can_be_done() {
        let report = CheckReport {
            clean: true,
            complete: true,
            files: 3,
            ..CheckReport::default()
        };
        assert!(
            to_text(&report, false).contains("3 files")
                && to_text(&report, false).contains("nothing is wrong")
        );
        let report = CheckReport {
            complete: true,
            orphans: 2,
            orphan_bytes: 100,
            ..CheckReport::default()
        };
        let text = to_text(&report, false);
        assert!(
            text.contains("something is wrong") && text.contains("--repair"),
            "{text}"
        );
    }
}
