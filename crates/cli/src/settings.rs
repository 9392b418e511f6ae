//! Translates settings as users write them to those that data servers take. Files become numbers, and paths become
//! absolute.
use crate::error::{CliError, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The directory of the deployment in which `trace=on` makes numbered directories.
const TRACES: &str = "traces";

/// Translates the words for a deployment in `dir` with this stripe unit.
pub fn meant(words: &[String], dir: &Path, stripe_unit: u64) -> Result<Vec<String>> {
    words
        .iter()
        .map(|word| {
            let meant = match word.split_once('=') {
                Some(("ratio", value)) if is_file_name(value) => {
                    ratio_of(&profile_in(Path::new(value))?, stripe_unit)
                        .map_err(|why| no_profile(Path::new(value), &why))?
                }
                Some(("times", value)) if is_file_name(value) => {
                    times_of(&profile_in(Path::new(value))?)
                        .map_err(|why| no_profile(Path::new(value), &why))?
                }
                Some(("trace", "on")) => format!("trace={}", fresh(&dir.join(TRACES)).display()),
                Some((name @ ("trace" | "predict"), value)) if value != "off" => {
                    format!("{name}={}", whole(value)?.display())
                }
                _ => word.clone(),
            };
            Ok(meant)
        })
        .collect()
}

/// The same, for a deployment file. A setting `trace` is refused: servers must not write over the trace of an earlier
/// run.
pub fn kept(words: &[String], dir: &Path, stripe_unit: u64) -> Result<Vec<String>> {
    let traces = |word: &&String| word.starts_with("trace=") && *word != "trace=off";
    match words.iter().find(traces) {
        Some(word) => Err(CliError::new(format!(
            "{word} can't be saved for servers that start later: a trace is of one run"
        ))
        .next("`penstock up DIR --trace TRACES` traces from the start; `penstock tune` without --save from now on")),
        None => meant(words, dir, stripe_unit),
    }
}

fn whole(path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(
            CliError::new("`trace` and `predict` take the directory of traces, or off")
                .next("`penstock tune --help` lists settings"),
        );
    }
    std::path::absolute(path).map_err(|e| CliError::io("find", Path::new(path), e))
}

/// The first numbered directory that does not exist yet.
fn fresh(dir: &Path) -> PathBuf {
    let numbered = |n: u32| dir.join(n.to_string());
    (1..u32::MAX)
        .map(numbered)
        .find(|path| !path.exists())
        .unwrap_or_else(|| numbered(u32::MAX))
}

/// Whether the value names a profile: a ratio is one number or two; anything else is a file.
fn is_file_name(value: &str) -> bool {
    value.ends_with(".json") || value.contains('/') && Path::new(value).is_file()
}

/// Reads the output of `penstock profile --json`.
pub fn profile_in(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).map_err(|e| CliError::io("read", path, e))?;
    serde_json::from_str(&text).map_err(|e| no_profile(path, &e.to_string()))
}

/// The error for a file that is no profile.
pub fn no_profile(path: &Path, why: &str) -> CliError {
    CliError::new(format!("{} is no profile: {why}", path.display()))
        .next("`penstock profile DIR --json > FILE` makes one")
}

/// The setting `times=...` of a profile. It has the random access times at the profile's sizes that are powers of two.
/// They are the cost of a request that is not aggregated.
pub fn times_of(profile: &Value) -> std::result::Result<String, String> {
    let curve = |name: &str| -> Option<String> {
        let points = profile["times"][name].as_array()?;
        let point = |p: &Value| Some((p[0].as_u64()?, p[1].as_f64()?));
        let points: Vec<String> = points
            .iter()
            .filter_map(point)
            .filter(|(bytes, _)| bytes.is_power_of_two())
            .map(|(bytes, time)| format!("{bytes}/{time:.0}"))
            .collect();
        (points.len() > 1).then(|| points.join(","))
    };
    let read = curve("random_read").ok_or("it has no times.random_read of two powers of two")?;
    // A profile of reads only: writes are assumed to cost the same.
    let write = curve("random_write").unwrap_or_else(|| read.clone());
    Ok(format!("times={read}:{write}"))
}

/// The setting `ratio=READ:WRITE` of a profile, at the measured size nearest to so many bytes.
pub fn ratio_of(profile: &Value, bytes: u64) -> std::result::Result<String, String> {
    let nearest = |op: &str| -> Option<f64> {
        let sizes = profile["ratio"][op]["sizes"].as_array()?;
        let point = |p: &Value| Some((p["bytes"].as_u64()?, p["ratio"].as_f64()?));
        let points = sizes.iter().filter_map(point);
        Some(points.min_by_key(|(size, _)| size.abs_diff(bytes))?.1)
    };
    let read = nearest("read").ok_or("it has no ratio.read.sizes")?;
    // A profile of reads only: writes are assumed to behave alike.
    let write = nearest("write").unwrap_or(read);
    Ok(format!("ratio={read:.2}:{write:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_whole_and_other_words_stay() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(Into::into).collect() };
        let dir = tempfile::tempdir().unwrap();
        let meant = |text: &str| meant(&words(text), dir.path(), 65536).unwrap();
        let same = "sched=tree ratio=38.9:21.3 trace=off predict=off predict=/a/b depth=2 odd";
        assert_eq!(meant(same), words(same));
        let on = format!("trace={}", dir.path().join("traces/1").display());
        assert_eq!(meant("trace=on"), [on]);
        std::fs::create_dir_all(dir.path().join("traces/1")).unwrap();
        assert!(meant("trace=on")[0].ends_with("traces/2"));
        assert!(meant("predict=here")[0].starts_with("predict=/"));
        assert!(super::meant(&words("predict="), dir.path(), 65536).is_err());
        assert!(kept(&words("trace=on"), dir.path(), 65536).is_err());
        assert!(kept(&words("trace=off depth=1"), dir.path(), 65536).is_ok());
    }

    #[test]
    fn a_profile_gives_times_of_random_accesses() {
        let profile = serde_json::json!({"times": {"random_read": [
            [8192, 100.4], [12288, 1.0], [16384, 150.0], [65536, 400.0],
        ]}});
        let curve = "8192/100,16384/150,65536/400";
        assert_eq!(
            times_of(&profile).unwrap(),
            format!("times={curve}:{curve}")
        );
        assert!(times_of(&serde_json::json!({})).is_err());
    }

    #[test]
    fn a_profile_gives_the_ratio_of_the_nearest_size() {
        let profile = serde_json::json!({"ratio": {"read": {"sizes": [
            {"bytes": 8192, "ratio": 40.0}, {"bytes": 65536, "ratio": 12.345}, {"bytes": 98304, "ratio": 9.0},
        ]}}});
        assert_eq!(ratio_of(&profile, 65536).unwrap(), "ratio=12.35:12.35");
        assert_eq!(ratio_of(&profile, 1 << 20).unwrap(), "ratio=9.00:9.00");
        assert!(ratio_of(&serde_json::json!({}), 1).is_err());
    }
}
