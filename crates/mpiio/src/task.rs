//! Tasks of a launcher that should be ranks of one program but are programs of one rank each.
//!
//! *Problem*: if the launcher does not fit the program's MPI library, each task sees a world of one rank. It writes the
//! same file as all others, and succeeds. *Idea*: the launcher's variables give the number of tasks and the number of
//! this one. If there are several tasks with a world of one rank each, the first one that opens a file for writing
//! reserves it ([`FileSystem::claim`](crate::filesystem::FileSystem::claim)). Programs of several ranks, and tasks with
//! separate files, are not affected. *Source*: docs/decisions/0035; the manuals of Open MPI, Hydra, Slurm, Flux and
//! IBM's jsrun, and the observed variables of the first three.
use crate::error::{Error, ErrorClass};
use penstock_client::job;
use std::ffi::OsStr;
use std::path::Path;

/// Allows such tasks to write the same file.
pub const TASK_FARM: &str = "PENSTOCK_TASK_FARM";

/// Variables of `mpiexec` implementations: number of tasks, and number of this one.
const MPIEXECS: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
];
/// The same of resource managers, which may also have started an `mpiexec`: then its own variables count.
const MANAGERS: [(&str, &str); 3] = [
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    ("PALS_SIZE", "PALS_RANKID"),
];
/// One of these is set if tasks of Slurm were started by an `mpiexec`.
const NOT_SRUN: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"];
/// Most bytes of the program's command line in a message: some MPI libraries truncate messages at 256 bytes.
const MAX_COMMAND: usize = 80;

/// The interface by which an MPI library learns its rank from its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pmi {
    /// A descriptor in `PMI_FD`: versions 1 and 2 of MPICH's interface, which Slurm's plugin `pmi2` serves.
    Pmi2,
    /// PMIx, which Open MPI needs, and MPICH if it was built so.
    Pmix,
}

impl Pmi {
    /// The interface of the MPI library among these libraries.
    pub fn of<'a>(libraries: impl IntoIterator<Item = &'a str>) -> Pmi {
        let pmix = libraries.into_iter().any(|library| {
            let name = Path::new(library).file_name().and_then(OsStr::to_str);
            name.is_some_and(|n| n.starts_with("libpmix.so") || n.starts_with("libmpi.so.40"))
        });
        if pmix { Pmi::Pmix } else { Pmi::Pmi2 }
    }

    /// Its name in Slurm: `srun --mpi=NAME`.
    pub fn name(self) -> &'static str {
        match self {
            Pmi::Pmi2 => "pmi2",
            Pmi::Pmix => "pmix",
        }
    }

    /// Whether `srun --mpi=PLUGIN` serves it; `None`: the plugin is unknown.
    pub fn is_served_by(self, plugin: &str) -> Option<bool> {
        match plugin {
            "none" | "openmpi" => Some(false),
            "pmi2" => Some(self == Pmi::Pmi2),
            name if name == "pmix" || name.starts_with("pmix_v") => Some(self == Pmi::Pmix),
            _ => None,
        }
    }
}

/// One of several tasks of a step, with a world of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Equal in all tasks of the step, and in no other step.
    pub step: u64,
    /// This task's number.
    pub number: u32,
    /// Tasks of the step.
    pub count: u32,
    /// The command that would start them as one program.
    command: String,
}

impl Task {
    /// This process, if its launcher has started several tasks of a step with a known number. Called if the world has
    /// one rank.
    pub(crate) fn alone(direct: bool) -> Option<Task> {
        let environment = job::first_environment();
        let get = |name: &str| String::from_utf8(environment.get(name.as_bytes())?.clone()).ok();
        let (count, number) = launched(get)?;
        let step = job::step(&environment)?;
        let program = penstock_client::announce::program().command;
        // Lines end with the path of the mapped file.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let libraries = maps.lines().filter_map(|line| line.split(' ').next_back());
        let command = command(get, count, direct, Pmi::of(libraries), &program);
        Some(Task {
            step,
            number,
            count,
            command,
        })
    }

    /// One of two tasks.
    #[cfg(test)]
    pub(crate) fn of_two(step: u64, number: u32) -> Task {
        Task {
            step,
            number,
            count: 2,
            command: "penstock run -n 2 -- ./app".into(),
        }
    }

    /// The error of a task whose file another task of its step writes; `None`: that task is unknown.
    pub(crate) fn refuse(&self, other: Option<u32>) -> Error {
        let other = other.map_or("another task".into(), |other| format!("task {other}"));
        let what = format!("{other} of this step writes it. {}", self.explain());
        // Some programs ignore the result of an open, and some MPI libraries truncate the message.
        log::error!("task {}: {what}", self.number);
        Error::new(ErrorClass::FileInUse, what)
    }

    /// What is wrong, and what to do.
    pub(crate) fn explain(&self) -> String {
        format!(
            "Use `{}`: now {} tasks are programs of one rank each. If that is intended, set {TASK_FARM}=1",
            self.command, self.count
        )
    }
}

/// The number of tasks and this one's, if there are several.
fn launched(get: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let number = |name: &str| get(name)?.parse::<u32>().ok();
    let said = |variables: &[(&str, &str)]| -> Vec<(u32, u32)> {
        let said = variables.iter();
        said.filter_map(|(count, task)| Some((number(count)?, number(task)?)))
            .collect()
    };
    let mut all = said(&MPIEXECS);
    if all.is_empty() {
        all = said(&MANAGERS);
    }
    // An inner launcher may have started this process alone.
    all.iter().all(|(count, _)| *count > 1).then_some(())?;
    all.first().copied()
}

fn command(
    get: impl Fn(&str) -> Option<String>,
    count: u32,
    direct: bool,
    pmi: Pmi,
    program: &str,
) -> String {
    let end = (0..=MAX_COMMAND.min(program.len()))
        .rev()
        .find(|at| program.is_char_boundary(*at))
        .unwrap_or(0);
    let more = if end < program.len() { "…" } else { "" };
    let program = format!("{}{more}", &program[..end]);
    if get(MANAGERS[0].0).is_some() && NOT_SRUN.iter().all(|name| get(name).is_none()) {
        return format!("srun --mpi={} -n {count} {program}", pmi.name());
    }
    let direct = if direct { " --direct" } else { "" };
    format!("penstock run -n {count}{direct} -- {program}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + Copy + 'a {
        |name| Some(set.iter().find(|(n, _)| *n == name)?.1.into())
    }

    #[test]
    fn launchers_say_how_many_tasks_there_are() {
        let of = |set: &[(&str, &str)]| launched(get(set));
        let step = [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "3")];
        assert_eq!(of(&[]), None);
        assert_eq!(of(&step), Some((4, 3)));
        // A batch script's own processes are not tasks of a step.
        assert_eq!(of(&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]), None);
        assert_eq!(of(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]), Some((2, 1)));
        assert_eq!(of(&[("PMI_SIZE", "2")]), None);
        assert_eq!(of(&[("PMI_SIZE", "1"), ("PMI_RANK", "0")]), None);
        // The innermost launcher counts.
        let within = |inner: &[(&'static str, &'static str)]| of(&[&step, inner].concat());
        assert_eq!(within(&[("PMI_SIZE", "1"), ("PMI_RANK", "0")]), None);
        assert_eq!(
            within(&[("PMI_SIZE", "8"), ("PMI_RANK", "5")]),
            Some((8, 5))
        );
        let open = [("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "1")];
        assert_eq!(within(&open), Some((2, 1)));
        let both = [&open[..], &[("PMI_SIZE", "1"), ("PMI_RANK", "0")]].concat();
        assert_eq!(of(&both), None, "which is nearer is not known");
    }

    #[test]
    fn the_command_is_the_launchers_that_fits() {
        let step = [("SLURM_STEP_NUM_TASKS", "4")];
        let of = |set: &[(&str, &str)], pmi| command(get(set), 4, false, pmi, "./app f");
        assert_eq!(of(&step, Pmi::Pmi2), "srun --mpi=pmi2 -n 4 ./app f");
        assert_eq!(of(&step, Pmi::Pmix), "srun --mpi=pmix -n 4 ./app f");
        let hydra = [step[0], ("MPI_LOCALNRANKS", "2")];
        assert_eq!(of(&hydra, Pmi::Pmix), "penstock run -n 4 -- ./app f");
        let long = command(get(&[]), 2, true, Pmi::Pmi2, &"ä".repeat(200));
        assert!(long.starts_with("penstock run -n 2 --direct -- ä") && long.ends_with('…'));
        assert!(long.len() < 2 * MAX_COMMAND, "{long}");
    }

    #[test]
    fn what_a_library_needs_is_seen_by_what_comes_with_it() {
        assert_eq!(Pmi::of(["/lib/libmpi.so.12", "/lib/libc.so.6"]), Pmi::Pmi2);
        assert_eq!(Pmi::of(["/lib/libmpi.so.12", "/x/libpmix.so.2"]), Pmi::Pmix);
        assert_eq!(Pmi::of(["/lib/libmpi.so.40.30.4"]), Pmi::Pmix);
        assert_eq!(Pmi::Pmix.is_served_by("pmix_v4"), Some(true));
        assert_eq!(Pmi::Pmix.is_served_by("pmi2"), Some(false));
        assert_eq!(Pmi::Pmi2.is_served_by("pmix"), Some(false));
        assert_eq!(Pmi::Pmi2.is_served_by("none"), Some(false));
        assert_eq!(Pmi::Pmi2.is_served_by("cray_shasta"), None);
    }
}
