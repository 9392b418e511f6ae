//! Whatever stands in a file or an option that a user wrote: an error, or something usable.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_device::Model;
use penstock_sim::{Experiment, Scenario};
use penstock_sched::learn::{FEATURES, Tree};
use penstock_wire::Credential;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    match kind % 5 {
        0 => drop(Scenario::parse(text, "scenario.toml")),
        1 => drop(Experiment::parse(text, "experiment.toml")),
        2 => {
            if let Ok(tree) = Tree::from_json(text) {
                let (_, share) = tree.classify(&[0.5; FEATURES.len()]);
                assert!((0.0..=1.0).contains(&share));
            }
        }
        3 => {
            if let Ok(credential) = Credential::parse(text) {
                let again = credential.text().expect("a credential has a text");
                let again = Credential::parse(&again).expect("which is one");
                assert_eq!(credential.signed(), again.signed());
            }
        }
        _ => drop(Model::parse(text)),
    }
});
