//! The audit records of a connection's requests.
use penstock_layout::FileId;
use penstock_rpc::audit::{Audit, Event, Outcome, Subject};
use penstock_wire::message::{MetaReply, MetaRequest, NodeRequest, WireError};
use std::fmt::Write as _;
use std::sync::Arc;

/// The log, and what a record of the current request needs: the request itself is consumed before its result is known.
pub struct Audited {
    audit: Arc<Audit>,
    subject: Subject,
    act: Option<Act>,
    /// Reused for each request, to save an allocation.
    object: String,
    user: Option<u32>,
}

/// An administrative action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Act {
    event: Event,
    /// Whether success is recorded too.
    done: bool,
}

impl Audited {
    pub fn new(audit: Arc<Audit>, subject: Subject) -> Audited {
        Audited {
            audit,
            subject,
            act: None,
            object: String::new(),
            user: None,
        }
    }

    /// A request begins.
    pub fn begins(&mut self, request: &MetaRequest) {
        self.object.clear();
        self.user = None;
        let request = match request {
            MetaRequest::Once { request, .. } => request,
            request => request,
        };
        let act = |event, done| Some(Act { event, done });
        self.act = match request {
            MetaRequest::ListFiles { after, .. } => act(Event::List, after.is_none()),
            MetaRequest::GivenIds => act(Event::List, true),
            MetaRequest::Store(report) => {
                self.object.push_str(&report.place);
                // For a first or new store the answer decides.
                act(Event::Store, report.adopt)
            }
            MetaRequest::Revoke { what, .. } => {
                self.object = what.to_string();
                act(Event::Revoke, true)
            }
            MetaRequest::LoadKeys => act(Event::Keys, true),
            MetaRequest::Shutdown => act(Event::Stop, false),
            _ => None,
        };
        match request {
            MetaRequest::Open { path, .. }
            | MetaRequest::Stat { path }
            | MetaRequest::Unlink { path }
            | MetaRequest::Rename { from: path, .. }
            | MetaRequest::Mkdir { path, .. }
            | MetaRequest::Rmdir { path }
            | MetaRequest::Readdir { path, .. }
            | MetaRequest::SetAttr { path, .. }
            | MetaRequest::Look { path, .. }
            | MetaRequest::Symlink { path, .. }
            | MetaRequest::Writes { path, .. } => self.object.push_str(path),
            MetaRequest::Renew { file, .. } | MetaRequest::SyncFile { file } => self.id(*file),
            MetaRequest::Node { user, request } => {
                self.user = Some(user.uid);
                self.node(request);
            }
            _ => {}
        }
    }

    fn id(&mut self, id: FileId) {
        // Writing to a string cannot fail.
        let _ = write!(self.object, "id {}", id.0);
    }

    fn node(&mut self, request: &NodeRequest) {
        match request {
            NodeRequest::Lookup { parent, name }
            | NodeRequest::Create { parent, name, .. }
            | NodeRequest::Mkdir { parent, name, .. }
            | NodeRequest::Symlink { parent, name, .. }
            | NodeRequest::Link { parent, name, .. }
            | NodeRequest::Unlink { parent, name, .. }
            | NodeRequest::Rmdir { parent, name }
            | NodeRequest::Rename { parent, name, .. } => {
                self.id(*parent);
                self.object.push('/');
                self.object.push_str(name);
            }
            NodeRequest::Stat { id }
            | NodeRequest::Open { id, .. }
            | NodeRequest::Reap { id }
            | NodeRequest::Readdir { id, .. }
            | NodeRequest::SetAttr { id, .. }
            | NodeRequest::GetXattr { id, .. }
            | NodeRequest::ListXattr { id }
            | NodeRequest::SetXattr { id, .. }
            | NodeRequest::RemoveXattr { id, .. }
            | NodeRequest::Look { id }
            | NodeRequest::Lock { id, .. } => self.id(*id),
            NodeRequest::AwaitUnlock { .. } | NodeRequest::Keep { .. } => {}
        }
    }

    /// A request ends with this result.
    pub fn ended(&self, answer: Result<&MetaReply, &WireError>) {
        match answer {
            Err(e) => self.refused(e),
            Ok(MetaReply::Store { new: Some(_) }) => self.done(Event::Store, "accepted as new"),
            Ok(_) => {
                if let Some(Act { event, done: true }) = self.act {
                    self.done(event, reason(event));
                }
            }
        }
    }

    fn refused(&self, e: &WireError) {
        let subject = self.subject.acting_for(self.user);
        let act = self.act.map(|act| act.event);
        let reason = &e.message;
        self.audit
            .refused(act, &subject, self.object(), e.kind, reason);
    }

    fn done(&self, event: Event, reason: &str) {
        let object = self.object();
        self.audit
            .note(event, Outcome::Done, &self.subject, object, reason);
    }

    fn object(&self) -> Option<&[u8]> {
        (!self.object.is_empty()).then_some(self.object.as_bytes())
    }
}

fn reason(event: Event) -> &'static str {
    match event {
        Event::Store => "taken as the right one",
        Event::Revoke => "credentials were revoked",
        _ => "names or ids of all files",
    }
}
