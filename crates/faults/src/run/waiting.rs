//! Test: how long a data server waits for the metadata server.
use super::Root;
use crate::cluster::{Cluster, Status, deployment};
use crate::plan;
use crate::world::{SECOND, Setup, Simulation};
use std::time::Duration;

/// 2 s before the time limit a data server still waits; then it ends and names the metadata server it waited for.
#[test]
fn a_data_server_without_a_metadata_server_gives_up() {
    let driver = std::thread::spawn(|| {
        let root = Root::new().unwrap();
        let shape = plan::shape(1);
        let deployment = deployment(&root.path, &shape).unwrap();
        let roots: Vec<_> = (0..=shape.servers)
            .map(|machine| root.path.join(format!("machine-{machine}")))
            .collect();
        for path in &roots {
            std::fs::create_dir(path).unwrap();
        }
        let setup = Setup {
            seed: 1,
            roots,
            plant: None,
            print: false,
        };
        let world = Simulation::begin(setup).unwrap();
        let mut cluster = Cluster::new(world, deployment, None);
        cluster.start(1).unwrap();
        let sleep = |until| {
            let now = world.state().now;
            penstock_host::thread::sleep(Duration::from_nanos(until - now));
        };
        sleep(298 * SECOND);
        assert_eq!(cluster.status(1), Status::Starting);
        sleep(312 * SECOND);
        let Status::Failed(why) = cluster.status(1) else {
            panic!("{:?}", cluster.status(1));
        };
        for word in ["300 s", "machine-0:7000", "penstock serve --meta"] {
            assert!(why.contains(word), "{why}");
        }
        // After a restart it continues as soon as there is one.
        cluster.gone(1, SECOND);
        cluster.start(1).unwrap();
        sleep(330 * SECOND);
        cluster.start(0).unwrap();
        cluster.wait_up(1, 20 * SECOND).unwrap();
    });
    driver.join().unwrap();
}
