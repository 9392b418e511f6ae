//! Telling servers of new keys, for administrators.
use crate::client::Client;
use crate::error::{Error, Result};
use penstock_layout::ServerId;
use penstock_wire::message::{DataReply, DataRequest, KeysHeld, MetaReply, MetaRequest};

impl Client {
    /// Tells a server (a data server, or the metadata server) to read the deployment file again and use the keys that
    /// it names. Returns the generations that it accepts from now on.
    pub fn load_keys(&self, server: Option<ServerId>) -> Result<KeysHeld> {
        let what = "have keys read by";
        let Some(id) = server else {
            return match self.meta(what, &MetaRequest::LoadKeys)? {
                MetaReply::Keys(held) => Ok(held),
                other => Err(self.meta_protocol(what, &other)),
            };
        };
        let Some((_, site)) = self.data_sites().find(|(known, _)| *known == id) else {
            return Err(Error::Invalid(format!("no data server {}", id.0)));
        };
        match self.data(site, what, &DataRequest::LoadKeys)? {
            DataReply::Keys(held) => Ok(held),
            other => Err(site.unexpected(what, other).into_final(&site.peer, what)),
        }
    }
}
