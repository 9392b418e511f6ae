//! The servers of a deployment, one by one.
use crate::process::Process;
use penstock_layout::ServerId;
use penstock_rpc::deployment::Deployment;
use serde::{Deserialize, Serialize};

/// The file in every store that its server locks and writes its process number to.
const LOCK: &str = "lock";

/// One server of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// The metadata server.
    Meta,
    /// A data server.
    Data(ServerId),
}

impl Which {
    /// All servers, the metadata server first.
    pub fn all(deployment: &Deployment) -> Vec<Which> {
        std::iter::once(Which::Meta)
            .chain(deployment.server_ids().into_iter().map(Which::Data))
            .collect()
    }

    /// The servers that run on `host`. All if it is `None`, that is, if the deployment names no hosts.
    pub fn on(deployment: &Deployment, host: Option<&str>) -> Vec<Which> {
        let all = Which::all(deployment).into_iter();
        all.filter(|which| which.host(deployment) == host).collect()
    }

    /// The server's host, if the deployment names one.
    pub fn host(self, deployment: &Deployment) -> Option<&str> {
        match self {
            Which::Meta => deployment.host(None),
            Which::Data(id) => deployment.host(Some(id)),
        }
    }

    /// A data server's number.
    pub fn id(self) -> Option<ServerId> {
        match self {
            Which::Meta => None,
            Which::Data(id) => Some(id),
        }
    }

    /// Its name in files and messages.
    pub fn name(self) -> String {
        match self {
            Which::Meta => "meta".into(),
            Which::Data(id) => format!("data-{}", id.0),
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Which> {
        let which = match name.strip_prefix("data-") {
            Some(id) => Which::Data(ServerId(id.parse().ok()?)),
            None => Which::Meta,
        };
        (which.name() == name).then_some(which)
    }

    /// Its name in sentences.
    pub fn title(self) -> String {
        match self {
            Which::Meta => "the metadata server".into(),
            Which::Data(id) => format!("data server {}", id.0),
        }
    }

    /// The process of this host that holds the lock on the server's store. Stores in memory have none.
    pub fn holder(self, deployment: &Deployment) -> Option<Process> {
        let target = match self {
            Which::Meta => return Process::holding(&deployment.meta.store.join(LOCK)),
            Which::Data(id) => deployment.server(id)?.target().ok()?,
        };
        Process::holding(&target.dir()?.join(LOCK))
    }

    /// The arguments of `penstock serve` for this server.
    pub fn arguments(self) -> Vec<String> {
        match self {
            Which::Meta => vec!["--meta".into()],
            Which::Data(id) => vec!["--server".into(), id.0.to_string()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_by_the_names_they_have() {
        for which in [
            Which::Meta,
            Which::Data(ServerId(0)),
            Which::Data(ServerId(16_383)),
        ] {
            assert_eq!(Which::named(&which.name()), Some(which));
        }
        for bad in [
            "", "data", "data-", "data-00", "data-+1", "data--1", "data-x", "meta2", "Meta",
        ] {
            assert_eq!(Which::named(bad), None, "{bad}");
        }
    }
}
