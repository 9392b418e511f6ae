//! `penstock status`: which servers answer, what they hold and what they did.
use crate::asking::{self, Answer, Inquirer, Round, Why};
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::programs::Listed;
use crate::which::Which;
use crate::{connect, fast, out, size};
use clap::Args;
use penstock_rpc::deployment::{Address, Deployment};
use penstock_wire::clock::WRONG_MS;
use penstock_wire::message::{
    AuditStatus, ChoiceStatus, DataStatus, MetaStatus, PatternStatus, ProgramStatus,
    SchedulerStatus,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Show which servers answer, what they hold and what they did.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Directory of the deployment [default: --deployment].
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Repeat, with so many seconds between [default: 2], until Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2", value_parser = interval)]
    pub watch: Option<f64>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// Seconds between two looks.
pub fn interval(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.1..=3600.0).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0.1 to 3600".into()),
    }
}

/// What to do about a server that says nothing of itself.
pub fn next(why: &Why, located: &Located) -> String {
    let dir = located.dir().display();
    if why.no_key
        && let Some(next) = connect::no_key(&located.deployment)
    {
        return next;
    }
    if why.refuses {
        format!(
            "it runs; the reason is above. If it is the key: {} has to be the one that the servers were started with (copy it from the directory of the deployment on their host, mode 600)",
            located.deployment.client_key.display()
        )
    } else {
        format!("`penstock status {dir}` shows which servers run, `penstock up {dir}` starts them")
    }
}

/// What all servers say of themselves.
type Answers = Round<DataStatus>;

/// Servers that do not answer, with the reason.
pub fn silent(deployment: &Deployment) -> Vec<(Which, Why)> {
    let answers = asking::states(deployment);
    let mut silent = Vec::new();
    if let Err(why) = answers.meta {
        silent.push((Which::Meta, why));
    }
    for (server, answer) in deployment.servers.iter().zip(answers.data) {
        if let Err(why) = answer {
            silent.push((Which::Data(server.id), why));
        }
    }
    silent
}

/// Fails unless every server answers, so that no program starts that would wait for one.
pub fn require_all(located: &Located) -> Result<()> {
    let silent = silent(&located.deployment);
    let Some((first, why)) = silent.first() else {
        return Ok(());
    };
    let first = first.title();
    let does = match (why.no_key, why.refuses) {
        (true, _) => "was not asked",
        (false, true) => "refuses this client",
        (false, false) => "does not answer",
    };
    let others = match silent.len() {
        1 => String::new(),
        n if why.refuses => format!(", and so do {} others", n - 1),
        n => format!(", nor do {} others", n - 1),
    };
    Err(CliError::new(format!("{first} {does}{others}: {why}")).next(next(why, located)))
}

/// The reports of the data servers, if all of them answer.
pub fn data_servers(deployment: &Deployment) -> Option<Vec<DataStatus>> {
    asking::states(deployment)
        .data
        .into_iter()
        .collect::<Answer<Vec<_>>>()
        .ok()
}

/// Prints the servers' reports. Exit code 1 if one doesn't answer.
pub fn status(args: &StatusArgs, named: Option<&Path>) -> Result<ExitCode> {
    match args.watch {
        Some(seconds) => watch(args, named, Duration::from_secs_f64(seconds)),
        None => once(args, named),
    }
}

/// Prints it repeatedly until it is interrupted. On a terminal each print replaces the last.
fn watch(args: &StatusArgs, named: Option<&Path>, pause: Duration) -> Result<ExitCode> {
    let located = deployment::find(args.dir.as_deref().or(named))?;
    let clear = std::io::stdout().is_terminal() && !args.json;
    let inquirer = Inquirer::new(&located.deployment);
    loop {
        let answers = asking::states_by(&inquirer, &located.deployment);
        let text = if args.json {
            to_json(&located.deployment, &answers).to_string()
        } else {
            to_text(&located.deployment, &answers)
        };
        // The cursor goes home, then the rest of the screen is erased.
        let begin = if clear { "\x1b[H\x1b[J" } else { "" };
        if !out::show(&format!("{begin}{text}\n")) {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(pause);
    }
}

fn once(args: &StatusArgs, named: Option<&Path>) -> Result<ExitCode> {
    let located = deployment::find(args.dir.as_deref().or(named))?;
    let answers = asking::states(&located.deployment);
    let down =
        answers.data.iter().filter(|a| a.is_err()).count() + usize::from(answers.meta.is_err());
    if args.json {
        out::print_json(&to_json(&located.deployment, &answers));
    } else {
        out::print(&to_text(&located.deployment, &answers));
        if let Err(why) = &answers.meta
            && why.refuses
        {
            let what = if why.no_key {
                "there is no usable client key"
            } else {
                "the servers refuse this client"
            };
            return Err(CliError::new(what).next(next(why, &located)));
        }
        if down > 0 {
            return Err(CliError::new(match down {
                1 => "1 server does not answer".to_string(),
                n => format!("{n} servers do not answer"),
            })
            .next(format!(
                "`penstock up {}` starts servers of this host; logs are in {}",
                located.dir().display(),
                located.log_dir().display()
            )));
        }
    }
    Ok(if down > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn address(address: &Address) -> String {
    let unix = address.unix.as_ref().map(|p| p.display().to_string());
    [unix, address.tcp.clone()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

fn uptime(ms: u64) -> String {
    size::duration(ms as f64 / 1e3)
}

fn to_text(deployment: &Deployment, answers: &Answers) -> String {
    let mut text = format!(
        "{}: {} data servers, stripe unit {}{}\n\n",
        deployment.name,
        deployment.servers.len(),
        size::bytes(deployment.stripe_unit),
        deployment
            .mount
            .as_ref()
            .map_or(String::new(), |m| format!(", mount path {}", m.display()))
    );
    let mut header = vec![
        "server",
        "state",
        "requests",
        "read",
        "written",
        "shortcuts",
        "objects",
        "free",
        "of",
        "up",
        "store",
    ];
    let columns = header.len();
    let mut rows = Vec::new();
    let mut reasons = Vec::new();
    let mut failed = |name: &str, why: &Why| {
        reasons.push(format!("{name}: {why}\n"));
        let mut row = vec![name.to_string(), why.state().into()];
        row.resize(columns, "-".into());
        row
    };
    rows.push(match &answers.meta {
        Ok(s) => vec![
            "meta".into(),
            "up".into(),
            size::count(s.requests),
            "-".into(),
            "-".into(),
            "-".into(),
            format!(
                "{} files, {} dirs",
                size::count(s.files),
                size::count(s.directories)
            ),
            "-".into(),
            "-".into(),
            uptime(s.uptime_ms),
            s.store.clone(),
        ],
        Err(why) => failed("meta", why),
    });
    for (server, answer) in deployment.servers.iter().zip(&answers.data) {
        let name = format!("data-{}", server.id.0);
        rows.push(match answer {
            Ok(s) => vec![
                name,
                "up".into(),
                size::count(s.requests),
                size::bytes(s.bytes_read),
                size::bytes(s.bytes_written),
                size::bytes(s.direct.read.saturating_add(s.direct.written)),
                size::count(s.objects),
                size::bytes(s.free_bytes),
                size::bytes(s.total_bytes),
                uptime(s.uptime_ms),
                s.store.clone(),
            ],
            Err(why) => failed(&name, why),
        });
    }
    if !deployment.hosts().is_empty() {
        header.push("host");
        for (row, which) in rows.iter_mut().zip(Which::all(deployment)) {
            row.push(which.host(deployment).unwrap_or("-").to_owned());
        }
    }
    text += &out::table(&header, &[2, 3, 4, 5, 6, 7, 8, 9], rows);
    if let Ok(s) = &answers.meta {
        text += &damage(s);
        text += &limits(s);
    }
    if let Some(warning) = crate::deployment::unprotected(deployment) {
        text += &format!("{warning}\n");
    }
    text += &refused(deployment, answers);
    text += &clocks(deployment, answers);
    text += &answers.programs.to_text();
    text += &fast_tiers(deployment, answers);
    text += &scheduling(deployment, answers);
    if !reasons.is_empty() {
        text += "\n";
        text += &reasons.concat();
    }
    text
}

/// Names that are lost or damaged.
fn damage(s: &MetaStatus) -> String {
    let mut text = String::new();
    if s.journal_lost > 0 {
        text += &format!(
            "A crash of its system has left {} of the metadata journal unreadable: the last changes of names, if not synced, may be lost.\n",
            size::bytes(s.journal_lost)
        );
    }
    if s.damaged > 0 {
        let so_far = if s.looked_through { "" } else { " so far" };
        text += &format!(
            "The names are damaged in {} places{so_far}: {}; run `penstock check`, and restore the metadata store from a backup.\n",
            size::count(s.damaged),
            s.damage.join("; ")
        );
    }
    text
}

fn fast_tiers(deployment: &Deployment, answers: &Answers) -> String {
    let up = deployment.servers.iter().zip(&answers.data);
    let up: Vec<_> = up
        .filter_map(|(server, answer)| Some((server.id, answer.as_ref().ok()?)))
        .collect();
    fast::to_text(&up)
}

/// The counts of the audit logs, if there are any.
fn refused(deployment: &Deployment, answers: &Answers) -> String {
    let data = answers
        .data
        .iter()
        .filter_map(|a| Some(a.as_ref().ok()?.audit));
    let all = data.chain(answers.meta.as_ref().ok().map(|s| s.audit));
    let (mut refused, mut dropped, mut errors) = (0u64, 0u64, 0u64);
    for audit in all {
        refused = refused.saturating_add(audit.refused);
        dropped = dropped.saturating_add(audit.dropped);
        errors = errors.saturating_add(audit.write_errors);
    }
    if refused + dropped + errors == 0 {
        return String::new();
    }
    let mut line = format!(
        "{} requests were refused since the start",
        size::count(refused)
    );
    if dropped + errors > 0 {
        line += &format!(
            "; {} audit records were lost, {} writes of the audit log failed",
            size::count(dropped),
            size::count(errors)
        );
    }
    let name = &deployment.name;
    line + &format!("; `penstock audit` on the servers' hosts shows those of {name}\n")
}

fn audit_json(audit: &AuditStatus) -> Value {
    json!({ "refused": audit.refused, "dropped": audit.dropped, "write_errors": audit.write_errors })
}

/// How many users have reached limits of files.
fn limits(s: &MetaStatus) -> String {
    if !s.counted {
        return "The files of each user are not counted yet; until then no limits on files hold.\n"
            .into();
    }
    let users = |n: u64| match n {
        1 => "1 user".to_owned(),
        n => format!("{} users", size::count(n)),
    };
    let line = |what: &str, soft: u64, hard: u64| match soft + hard {
        0 => String::new(),
        _ => format!(
            "Limits on {what}: {} over the soft, {} at the hard one; `penstock quota --all` names them.\n",
            users(soft),
            users(hard)
        ),
    };
    let uncounted = match s.bytes_uncounted {
        0 => String::new(),
        n => format!(
            "Limits on bytes: those of {} are being counted, or a data server is away.\n",
            users(n)
        ),
    };
    line("files", s.over_soft, s.at_hard)
        + &line("bytes", s.bytes_over_soft, s.bytes_at_hard)
        + &uncounted
}

/// The warning about a data server's wall clock that is ahead of the metadata server's, or behind it.
fn wrong_clock(name: &str, ahead_ms: i64) -> Option<String> {
    let by = ahead_ms.unsigned_abs();
    (by >= WRONG_MS).then(|| {
        format!(
            "the clock of {name}'s host is {} {} the metadata server's: set the one that is wrong (`timedatectl` on both hosts); files stay accessible, but their times of change may be wrong",
            size::duration(by as f64 / 1e3),
            if ahead_ms > 0 { "ahead of" } else { "behind" }
        )
    })
}

fn clocks(deployment: &Deployment, answers: &Answers) -> String {
    let mut text = String::new();
    for (server, answer) in deployment.servers.iter().zip(&answers.data) {
        let ahead = answer.as_ref().ok().and_then(|s| s.clock_ahead_ms);
        let name = format!("data-{}", server.id.0);
        if let Some(what) = ahead.and_then(|ahead| wrong_clock(&name, ahead)) {
            text += &format!("{what}\n");
        }
    }
    text
}

/// The schedulers' counters, of servers that have a scheduler or had one.
#[expect(
    clippy::too_many_lines,
    reason = "one pass over the answers fills all tables of one report"
)]
fn scheduling(deployment: &Deployment, answers: &Answers) -> String {
    let mut rows = Vec::new();
    let mut programs: BTreeMap<u64, Vec<&ProgramStatus>> = BTreeMap::new();
    let (mut choices, mut patterns, mut files) = (Vec::new(), Vec::new(), Vec::new());
    let mut notes = String::new();
    let time = |ns: u64| size::duration(ns as f64 / 1e9);
    for (server, answer) in deployment.servers.iter().zip(&answers.data) {
        let Ok(DataStatus { sched: s, .. }) = answer else {
            continue;
        };
        if s.algorithm == "noop" && s.arrived == 0 && s.choice.is_none() && !s.observed {
            continue;
        }
        let name = format!("data-{}", server.id.0);
        notes += &traces(&name, s);
        rows.push(vec![
            name.clone(),
            s.algorithm.clone(),
            size::count(s.queued),
            size::count(s.serving),
            size::count(s.completed),
            size::count(s.decisions),
            format!("{:.2}", s.dispatched as f64 / s.decisions.max(1) as f64),
            size::count(s.largest_aggregation.into()),
            size::count(s.shift_waits + s.aggregation_waits + s.predicted_waits),
            time(s.waiting_p50_ns),
            time(s.waiting_p99_ns),
        ]);
        if let Some(choice) = &s.choice {
            choices.push(vec![
                name.clone(),
                format!("{} ({})", s.algorithm, chooser(choice)),
                size::count(choice.changes),
                choice.reason.clone(),
            ]);
            patterns.extend(choice.patterns.iter().map(|p| {
                vec![
                    name.clone(),
                    operation(p).into(),
                    pattern(p),
                    size::count(p.files.into()),
                    size::count(p.requests.into()),
                    size::bytes(p.request_bytes),
                    if p.choice.is_empty() {
                        "no answer"
                    } else {
                        &p.choice
                    }
                    .into(),
                ]
            }));
            files.extend(choice.busiest.iter().take(FILES).map(|f| {
                vec![
                    name.clone(),
                    f.file.to_string(),
                    if f.write { "write" } else { "read" }.into(),
                    match f.pattern.as_str() {
                        "" => "too few".into(),
                        known => known.replace('_', " "),
                    },
                    size::count(f.requests.into()),
                    size::bytes(f.request_bytes),
                    f.choice.clone(),
                ]
            }));
        }
        for p in &s.programs {
            programs.entry(p.program).or_default().push(p);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let header = [
        "server",
        "sched",
        "queued",
        "serving",
        "requests",
        "decisions",
        "joined",
        "largest",
        "waits",
        "queue p50",
        "queue p99",
    ];
    let mut text = format!(
        "\n{}",
        out::table(&header, &[2, 3, 4, 5, 6, 7, 8, 9, 10], rows)
    );
    if !choices.is_empty() {
        let header = ["server", "choice", "changes", "reason"];
        text += &format!("\n{}", out::table(&header, &[2], choices));
    }
    if !patterns.is_empty() {
        let header = [
            "server", "op", "pattern", "files", "requests", "request", "wants",
        ];
        text += &format!("\n{}", out::table(&header, &[3, 4, 5], patterns));
    }
    if !files.is_empty() {
        let header = [
            "server",
            "file",
            "op",
            "pattern",
            "requests",
            "request",
            "runs under",
        ];
        text += &format!("\n{}", out::table(&header, &[1, 4, 5], files));
    }
    if !notes.is_empty() {
        text += &format!("\n{notes}");
    }
    if !programs.is_empty() {
        text += &format!("\n{}", programs_text(&programs, &answers.programs));
    }
    text
}

/// The programs that use the servers, the one with the most bytes first. Bytes are sums over all servers, times those
/// of the slowest.
fn programs_text(programs: &BTreeMap<u64, Vec<&ProgramStatus>>, listed: &Listed) -> String {
    let sum = |at: &[&ProgramStatus], of: fn(&ProgramStatus) -> u64| -> u64 {
        at.iter().map(|p| of(p)).sum()
    };
    let largest = |at: &[&ProgramStatus], of: fn(&ProgramStatus) -> u64| {
        let most = at.iter().map(|p| of(p)).max().unwrap_or(0);
        size::duration(most as f64 / 1e9)
    };
    let mut all: Vec<(u64, &u64, &[&ProgramStatus])> = programs
        .iter()
        .map(|(program, at)| (sum(at, |p| p.bytes), program, at.as_slice()))
        .collect();
    all.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    let total: u64 = all.iter().map(|(bytes, ..)| bytes).sum();
    let rows = all.iter().map(|(bytes, program, at)| {
        vec![
            listed.name(**program),
            size::count(at.len() as u64),
            size::count(sum(at, |p| p.requests)),
            size::bytes(*bytes),
            format!("{:.1} %", 100.0 * *bytes as f64 / total.max(1) as f64),
            largest(at, |p| p.p50_ns),
            largest(at, |p| p.p99_ns),
        ]
    });
    let header = [
        "program", "servers", "requests", "bytes", "share", "p50", "p99",
    ];
    out::table(&header, &[1, 2, 3, 4, 5, 6], rows.collect())
}

/// Files per server that the tables for people show.
const FILES: usize = 4;

/// The trace that is being written, and the predictions of an earlier one.
fn traces(name: &str, s: &SchedulerStatus) -> String {
    let mut text = String::new();
    if let Some(t) = &s.trace {
        text += &format!(
            "{name} traces to {}: {} events, {} dropped\n",
            t.path,
            size::count(t.events),
            size::count(t.dropped)
        );
    }
    if let Some(p) = &s.prediction {
        text += &format!(
            "{name} predicts from {}: {} requests in it, {} aggregations; {} came as predicted, {} did not; {} waits, {:.0}% of their time used for others\n",
            p.path,
            size::count(p.predicted),
            size::count(p.aggregations),
            size::count(p.matched),
            size::count(p.unmatched),
            size::count(s.predicted_waits),
            f64::from(p.alpha_ppm) / 1e4
        );
    }
    text
}

/// What chooses the scheduler: `tree t3`, `online p99`.
fn chooser(choice: &ChoiceStatus) -> String {
    let by = match choice.mode.as_str() {
        "online" => &choice.objective,
        _ => &choice.tree,
    };
    format!("{} {by}", choice.mode)
}

fn operation(p: &PatternStatus) -> &'static str {
    if p.write { "write" } else { "read" }
}

fn pattern(p: &PatternStatus) -> String {
    format!("{} {}", p.order, if p.large { "large" } else { "small" })
}

fn choice_json(c: &ChoiceStatus) -> Value {
    let pattern = |p: &PatternStatus| {
        json!({
            "op": operation(p), "pattern": pattern(p), "files": p.files, "requests": p.requests,
            "request_bytes": p.request_bytes, "bytes_per_file": p.bytes_per_file,
            "wants": (!p.choice.is_empty()).then_some(&p.choice),
        })
    };
    let ratio = |milli: u64| milli as f64 / 1e3;
    let scores: serde_json::Map<String, Value> = c
        .scores
        .iter()
        .map(|(a, s)| (a.clone(), json!(s)))
        .collect();
    json!({
        "mode": c.mode, "tree": c.tree, "objective": c.objective,
        "ratio": { "read": ratio(c.ratio_read_milli), "write": ratio(c.ratio_write_milli) },
        "changes": c.changes, "age_ns": c.age_ns, "reason": c.reason,
        "requests": c.requests, "files": c.files,
        "patterns": c.patterns.iter().map(pattern).collect::<Vec<_>>(),
        "busiest": c.busiest.iter().map(|f| json!({
            "file": f.file, "op": if f.write { "write" } else { "read" }, "pattern": f.pattern,
            "requests": f.requests, "request_bytes": f.request_bytes, "runs": f.choice,
        })).collect::<Vec<_>>(),
        "scores": scores,
    })
}

fn scheduler_json(s: &SchedulerStatus) -> Value {
    let program = |p: &ProgramStatus| {
        json!({
            "program": p.program, "requests": p.requests, "bytes": p.bytes,
            "share": f64::from(p.share_ppm) / 1e6, "p50_ns": p.p50_ns, "p99_ns": p.p99_ns,
        })
    };
    json!({
        "algorithm": s.algorithm.split(", ").next(), "algorithms": s.algorithm.split(", ").collect::<Vec<_>>(), "choice": s.choice.as_ref().map(choice_json), "depth": s.depth, "quantum": s.quantum,
        "order_conflicts": s.order_conflicts, "observed": s.observed,
        "queued": s.queued, "serving": s.serving, "peak_queued": s.peak_queued,
        "arrived": s.arrived, "completed": s.completed, "refused": s.refused,
        "decisions": s.decisions, "dispatched": s.dispatched, "bytes": s.bytes,
        "aggregations": s.aggregations, "largest_aggregation": s.largest_aggregation,
        "shift_waits": s.shift_waits, "aggregation_waits": s.aggregation_waits,
        "predicted_waits": s.predicted_waits,
        "trace": s.trace.as_ref().map(|t| json!({"path": t.path, "events": t.events, "dropped": t.dropped})),
        "prediction": s.prediction.as_ref().map(|p| json!({
            "path": p.path, "predicted": p.predicted, "aggregations": p.aggregations, "matched": p.matched, "alpha": f64::from(p.alpha_ppm) / 1e6, "seen": p.seen, "regrouped": p.regrouped,
            "unmatched": p.unmatched, "waits": p.waits, "waited_ns": p.waited_ns,
        })),
        "conflicts": s.conflicts, "waiting_p50_ns": s.waiting_p50_ns,
        "waiting_p99_ns": s.waiting_p99_ns,
        "programs": s.programs.iter().map(program).collect::<Vec<_>>(),
    })
}

fn to_json(deployment: &Deployment, answers: &Answers) -> Value {
    let state = |why: Option<&Why>| match why {
        None => json!({"up": true}),
        Some(why) => json!({"up": false, "reason": why.text}),
    };
    let with = |mut base: Value, more: Value| {
        if let (Value::Object(base), Value::Object(more)) = (&mut base, more) {
            base.extend(more);
        }
        base
    };
    let meta = with(
        with(
            json!({"host": deployment.meta.host}),
            state(answers.meta.as_ref().err()),
        ),
        match &answers.meta {
            Ok(s) => json!({
                "files": s.files, "directories": s.directories, "requests": s.requests,
                "commits": s.commits, "connections": s.connections, "uptime_ms": s.uptime_ms,
                "journal_lost": s.journal_lost, "looked_through": s.looked_through,
                "damaged": s.damaged, "damage": s.damage, "store": s.store,
                "audit": audit_json(&s.audit),
                "over_soft": s.over_soft, "at_hard": s.at_hard, "counted": s.counted,
                "bytes_over_soft": s.bytes_over_soft, "bytes_at_hard": s.bytes_at_hard,
                "bytes_uncounted": s.bytes_uncounted,
            }),
            Err(_) => json!({}),
        },
    );
    let servers: Vec<Value> = deployment
        .servers
        .iter()
        .zip(&answers.data)
        .map(|(server, answer)| {
            let base = with(
                json!({"id": server.id.0, "address": address(&server.address), "host": server.host}),
                state(answer.as_ref().err()),
            );
            with(
                base,
                match answer {
                    Ok(s) => json!({
                        "store": s.store, "connections": s.connections, "requests": s.requests,
                        "bytes_read": s.bytes_read, "bytes_written": s.bytes_written,
                        "shortcut_bytes_read": s.direct.read, "shortcut_bytes_written": s.direct.written,
                        "shortcut_accesses": s.direct.requests,
                        "total_bytes": s.total_bytes, "free_bytes": s.free_bytes,
                        "objects": s.objects, "busy_ns": s.busy_ns, "uptime_ms": s.uptime_ms,
                        "clock_ahead_ms": s.clock_ahead_ms,
                        "clock_wrong": s.clock_ahead_ms.and_then(|ahead| {
                            wrong_clock(&format!("data-{}", server.id.0), ahead)
                        }),
                        "audit": audit_json(&s.audit),
                        "sched": scheduler_json(&s.sched),
                        "fast": fast::to_json(s.fast.as_ref()),
                    }),
                    Err(_) => json!({}),
                },
            )
        })
        .collect();
    json!({
        "name": deployment.name, "id": deployment.id, "stripe_unit": deployment.stripe_unit,
        "mount": deployment.mount, "transport": deployment.transport, "meta": meta, "servers": servers,
        "programs": answers.programs.to_json(),
    })
}
