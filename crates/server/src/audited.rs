//! The audit records of a connection's requests.
use penstock_layout::FileId;
use penstock_rpc::audit::{Audit, Event, Outcome, Subject};
use penstock_wire::message::{DataReply, DataRequest, Handle, WireError};

/// What a record of a request needs: the request itself is consumed before its answer is known.
pub(crate) struct Act {
    /// The event, if it is an administrative action.
    event: Option<Event>,
    what: What,
    /// Whether success is recorded too.
    done: bool,
}

enum What {
    Nothing,
    File(FileId),
    Open(Handle),
    Settings(String),
}

impl Act {
    pub(crate) fn of(request: Option<&DataRequest>) -> Act {
        let act = |event, what| Act {
            event: Some(event),
            what,
            done: event != Event::Stop,
        };
        let other = |what| Act {
            event: None,
            what,
            done: false,
        };
        match request {
            Some(DataRequest::ListObjects { after, .. }) => Act {
                // One record for all pages.
                done: after.is_none(),
                ..act(Event::List, What::Nothing)
            },
            Some(DataRequest::RemoveObject { file }) => act(Event::Remove, What::File(*file)),
            Some(DataRequest::Verify) => act(Event::Verify, What::Nothing),
            // A listing of users, not of objects; one record for all looks of a check.
            Some(DataRequest::CountBytes { anew }) => Act {
                done: *anew,
                ..act(Event::Verify, What::Nothing)
            },
            Some(DataRequest::Accept { file }) => act(Event::Accept, What::File(*file)),
            Some(DataRequest::Tune { settings }) => {
                act(Event::Tune, What::Settings(settings.join(" ")))
            }
            Some(DataRequest::Drain) => act(Event::Tune, What::Settings("drain".to_owned())),
            Some(DataRequest::LoadKeys) => act(Event::Keys, What::Nothing),
            Some(DataRequest::Shutdown) => act(Event::Stop, What::Nothing),
            Some(
                DataRequest::Attach { capability }
                | DataRequest::Remove { capability }
                | DataRequest::Look { capability },
            ) => other(What::File(capability.file)),
            Some(
                DataRequest::Detach { handle }
                | DataRequest::Read { handle, .. }
                | DataRequest::Write { handle, .. }
                | DataRequest::Len { handle }
                | DataRequest::SetLen { handle, .. }
                | DataRequest::Allocate { handle, .. }
                | DataRequest::Sync { handle }
                | DataRequest::Lock { handle, .. }
                | DataRequest::Unlock { handle, .. }
                | DataRequest::Shortcut { handle }
                | DataRequest::Extend { handle, .. }
                | DataRequest::Lend { handle, .. }
                | DataRequest::Hold { handle, .. }
                | DataRequest::Prefetch { handle, .. },
            ) => other(What::Open(*handle)),
            Some(DataRequest::Status | DataRequest::Ledger) | None => other(What::Nothing),
        }
    }

    /// A request has ended with this result. `named`: the file of a handle.
    pub(crate) fn ended(
        &self,
        watch: &Watch<'_>,
        named: impl Fn(Handle) -> Option<FileId>,
        reply: Option<&DataReply>,
    ) {
        match (reply, self.event) {
            (Some(DataReply::Error(e)), event) => self.refused(watch, named, event, e),
            (_, Some(event)) if self.done => {
                let object = self.object(named);
                let object = object.as_deref().map(str::as_bytes);
                let subject = &watch.subject;
                watch
                    .audit
                    .note(event, Outcome::Done, subject, object, reason(event));
            }
            _ => {}
        }
    }

    #[cold]
    fn refused(
        &self,
        watch: &Watch<'_>,
        named: impl Fn(Handle) -> Option<FileId>,
        event: Option<Event>,
        e: &WireError,
    ) {
        let object = self.object(named);
        let object = object.as_deref().map(str::as_bytes);
        watch
            .audit
            .refused(event, &watch.subject, object, e.kind, &e.message);
    }

    fn object(&self, named: impl Fn(Handle) -> Option<FileId>) -> Option<String> {
        match &self.what {
            What::Nothing => None,
            What::File(file) => Some(format!("id {}", file.0)),
            What::Open(handle) => named(*handle).map(|file| format!("id {}", file.0)),
            What::Settings(settings) => Some(settings.clone()),
        }
    }
}

fn reason(event: Event) -> &'static str {
    match event {
        Event::List => "all objects",
        Event::Remove => "its object was removed without a capability",
        Event::Accept => "damage or loss was accepted as it is",
        Event::Tune => "settings were changed",
        _ => "done",
    }
}

/// The log, and the peer of the connection.
pub(crate) struct Watch<'a> {
    pub(crate) audit: &'a Audit,
    pub(crate) subject: Subject,
}

impl Watch<'_> {
    /// Records that a descriptor was refused to a peer that may not have it.
    pub(crate) fn no_descriptor(&self, file: FileId, reason: &str) {
        self.refused(Event::Descriptor, file, reason);
    }

    /// The peer uses requests instead, so this is no error.
    pub(crate) fn beyond_limit(&self, file: FileId, reason: &str) {
        self.refused(Event::Limit, file, reason);
    }

    fn refused(&self, event: Event, file: FileId, reason: &str) {
        let object = format!("id {}", file.0);
        let object = Some(object.as_bytes());
        self.audit
            .note(event, Outcome::Refused, &self.subject, object, reason);
    }
}
