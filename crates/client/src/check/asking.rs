//! What the check asks, asked of the real servers.
use super::{FilePage, Given, Inventory};
use crate::client::Client;
use crate::connection_pool::ConnectionPool;
use crate::error::{Error, Result};
use penstock_layout::{FileId, ServerId};
use penstock_wire::message::{
    CountedBytes, DataReply, DataRequest, ErrorKind, MetaReply, MetaRequest, NodeKind,
    ObjectFinding, StoreState, WrongCount,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a data server may take to examine its store.
const VERIFY: Duration = Duration::from_secs(3600);

pub(super) struct Asking<'a> {
    pub client: &'a Client,
}

impl Asking<'_> {
    fn site(&self, server: ServerId) -> Result<&Arc<ConnectionPool>> {
        self.client
            .data_sites()
            .find_map(|(id, site)| (id == server).then_some(site))
            .ok_or_else(|| Error::Invalid(format!("no data server {}", server.0)))
    }

    fn data<T>(
        &self,
        server: ServerId,
        request: &DataRequest,
        take: impl FnOnce(DataReply) -> std::result::Result<T, DataReply>,
    ) -> Result<T> {
        let site = self.site(server)?;
        let reply = self.client.data(site, "check", request)?;
        take(reply).map_err(|other| {
            site.unexpected("check", other)
                .into_final(&site.peer, "check")
        })
    }

    fn meta<T>(
        &self,
        request: &MetaRequest,
        take: impl FnOnce(MetaReply) -> std::result::Result<T, Box<MetaReply>>,
    ) -> Result<T> {
        let reply = self.client.meta("check", request)?;
        take(reply).map_err(|other| self.client.meta_protocol("check", &other))
    }
}

impl Inventory for Asking<'_> {
    fn servers(&self) -> Vec<ServerId> {
        self.client.deployment().server_ids()
    }

    fn given_ids(&self) -> Result<Given> {
        self.meta(&MetaRequest::GivenIds, |reply| match reply {
            MetaReply::Ids { ranges, stores } => Ok((ranges, stores)),
            other => Err(other.into()),
        })
    }

    fn files(&self, after: Option<FileId>, limit: u32) -> Result<FilePage> {
        self.meta(
            &MetaRequest::ListFiles { after, limit },
            |reply| match reply {
                MetaReply::Files { files, more } => Ok((files, more)),
                other => Err(other.into()),
            },
        )
    }

    fn objects(
        &self,
        server: ServerId,
        after: Option<FileId>,
        limit: u32,
    ) -> Result<(Vec<(FileId, u64)>, bool)> {
        let request = DataRequest::ListObjects { after, limit };
        self.data(server, &request, |reply| match reply {
            DataReply::Objects { objects, more } => Ok((objects, more)),
            other => Err(other),
        })
    }

    fn verify(&self, server: ServerId) -> Result<(Vec<ObjectFinding>, bool)> {
        let site = self.site(server)?;
        let ask = || {
            let mut link = site.dial("verify")?;
            link.set_patience(Some(VERIFY))?;
            link.call("verify", self.client.trace(), &DataRequest::Verify)
        };
        match ask() {
            Ok(DataReply::Findings { findings, more }) => Ok((findings, more)),
            Ok(other) => Err(site
                .unexpected("verify", other)
                .into_final(&site.peer, "verify")),
            Err(fault) => Err(fault.into_final(&site.peer, "verify")),
        }
    }

    fn store(&self, server: ServerId) -> Result<(u64, Option<StoreState>)> {
        self.data(server, &DataRequest::Status, |reply| match reply {
            DataReply::Status(status) => Ok((status.lost_below, status.identity)),
            other => Err(other),
        })
    }

    fn ids(&self, paths: Vec<String>) -> Result<Vec<Result<FileId>>> {
        let requests = paths.into_iter().map(|path| MetaRequest::Stat { path });
        let replies = self.client.batch(requests.collect())?;
        let id = |reply| match reply {
            MetaReply::Attributes(attributes) => Ok(attributes.id),
            MetaReply::Error(source) => Err(Error::Refused {
                peer: self.client.meta_site().peer.clone(),
                operation: "stat",
                source,
            }),
            other => Err(self.client.meta_protocol("stat", &other)),
        };
        Ok(replies.into_iter().map(id).collect())
    }

    fn entries(
        &self,
        path: &str,
        after: Option<String>,
        limit: u32,
    ) -> Result<(Vec<(String, bool)>, bool)> {
        let request = MetaRequest::Readdir {
            path: path.to_owned(),
            after,
            limit,
        };
        self.meta(&request, |reply| match reply {
            MetaReply::Entries { entries, more } => {
                let names = entries
                    .into_iter()
                    .map(|(name, attributes)| (name, attributes.kind == NodeKind::Directory));
                Ok((names.collect(), more))
            }
            other => Err(other.into()),
        })
    }

    fn remove_object(&self, server: ServerId, object: FileId) -> Result<()> {
        let removed = self.data(
            server,
            &DataRequest::RemoveObject { file: object },
            |reply| match reply {
                DataReply::Done => Ok(()),
                other => Err(other),
            },
        );
        match removed {
            // Somebody else did it.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn accept_object(&self, server: ServerId, object: FileId) -> Result<()> {
        let request = DataRequest::Accept { file: object };
        self.data(server, &request, |reply| match reply {
            DataReply::Done => Ok(()),
            other => Err(other),
        })
    }

    fn count_files(&self, repair: bool) -> Result<Vec<WrongCount>> {
        self.client.count_files(repair)
    }

    fn limited_users(&self) -> Result<BTreeMap<u32, u64>> {
        let users = self.client.all_quotas()?.users.into_iter();
        let limited = users.filter_map(|user| Some((user.uid, user.bytes?.used)));
        Ok(limited.collect())
    }

    fn owners(&self, files: Vec<FileId>) -> Result<Vec<Option<u32>>> {
        let asked = files.len();
        self.meta(&MetaRequest::Owners(files), |reply| match reply {
            MetaReply::Owners(owners) if owners.len() == asked => Ok(owners),
            other => Err(other.into()),
        })
    }

    fn counted_bytes(&self, server: ServerId, anew: bool) -> Result<Vec<CountedBytes>> {
        self.data(
            server,
            &DataRequest::CountBytes { anew },
            |reply| match reply {
                DataReply::Counted(users) => Ok(users),
                other => Err(other),
            },
        )
    }

    fn pause(&self, time: Duration) {
        penstock_host::thread::sleep(time);
    }
}
