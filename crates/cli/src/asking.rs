//! What all servers say of themselves: asked at the same time, and who is silent is named.
//!
//! *Problem*: a server that is cut off takes ten seconds to be given up, and whoever asks one after another waits for each. *Idea*: a
//! thread for each server and [`PATIENCE`] for all of them together. A server that has not answered by then is silent; its thread
//! ends by itself, and the server is not asked again before. *Bounds*: [`AT_ONCE`] threads for each round, one question under way for each server.
use crate::connect;
use crate::programs::Listed;
use crate::size;
use crate::which::Which;
use penstock_client::{Client, ClientOptions, Identity};
use penstock_layout::ServerId;
use penstock_rpc::Wallet;
use penstock_rpc::deployment::{Address, Deployment};
use penstock_wire::Role;
use penstock_wire::message::{DataStatus, LedgerStatus, MetaStatus};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How long somebody waits for all answers.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Servers that are asked at once.
const AT_ONCE: usize = 256;
/// Questions to the metadata server: who uses the servers, and its state.
const BEFORE_DATA: usize = 2;

/// An answer, or why there is none.
pub type Answer<T> = Result<T, Why>;

/// Why a server says nothing of itself.
#[derive(Debug, Clone)]
pub struct Why {
    /// For people.
    pub text: String,
    /// It runs, and does not take this client for one of its own: wrong key, another release or deployment.
    pub refuses: bool,
    /// It was not asked: there is no usable client key here.
    pub no_key: bool,
}

impl Why {
    fn of(e: &penstock_client::Error) -> Why {
        use penstock_client::ErrorKind::{BadKey, InvalidArgument, Permission, Version};
        Why {
            text: e.to_string(),
            refuses: matches!(e.kind(), BadKey | InvalidArgument | Permission | Version),
            no_key: false,
        }
    }

    fn silent(patience: Duration) -> Why {
        let within = size::duration(patience.as_secs_f64());
        Why {
            text: format!("no answer within {within}: it hangs, or is cut off"),
            refuses: false,
            no_key: false,
        }
    }

    /// One word for tables.
    pub fn state(&self) -> &'static str {
        match (self.no_key, self.refuses) {
            (true, _) => "no key",
            (false, true) => "refuses",
            (false, false) => "down",
        }
    }

    /// Says so where the server runs on this host and only its socket was removed.
    fn explain(&mut self, deployment: &Deployment, which: Which, at: &Address) {
        let missing = at.unix.as_deref().filter(|path| !path.exists());
        if let Some((path, process)) = missing.zip(which.holder(deployment)) {
            self.text = format!(
                "it runs as process {}, but its socket {} was removed; it makes a new one within seconds if the directory exists",
                process.number(),
                path.display()
            );
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Who asks the servers of a deployment, once or again and again.
pub struct Inquirer {
    deployment: Deployment,
    clients: Arc<Clients>,
    patience: Duration,
    /// Which questions are under way: the metadata server's two, then one for each data server.
    pending: Vec<Arc<AtomicBool>>,
}

/// As a user, and as an administrator where there is a credential that says so.
struct Clients {
    own: Client,
    administrator: Option<Client>,
}

impl Clients {
    /// With the most rights that the server grants.
    fn ask<T>(&self, question: impl Fn(&Client) -> Result<T, penstock_client::Error>) -> Answer<T> {
        use penstock_client::ErrorKind::Permission;
        let answer = match &self.administrator {
            Some(client) => match question(client) {
                Err(e) if e.kind() == Permission => question(&self.own),
                answer => answer,
            },
            None => question(&self.own),
        };
        answer.map_err(|e| Why::of(&e))
    }
}

/// Asked by a thread of its own.
type Question<T> = Box<dyn FnOnce(&Clients) -> T + Send>;

/// What came of one round.
pub struct Round<T> {
    /// Who uses the servers, as far as the metadata server tells this user; nobody where it is silent.
    pub programs: Listed,
    /// Of the metadata server.
    pub meta: Answer<MetaStatus>,
    /// In the order of the deployment.
    pub data: Vec<Answer<T>>,
}

enum Said<T> {
    Programs(Answer<Listed>),
    Meta(Answer<MetaStatus>),
    Data(Answer<T>),
}

impl Inquirer {
    /// Reaches no server yet. Fails where there is no usable key.
    pub fn new(deployment: &Deployment) -> Answer<Inquirer> {
        let client = |role| {
            let options = ClientOptions {
                retry_limit: Duration::ZERO,
                answer_timeout: 2 * PATIENCE,
                ..ClientOptions::default()
            };
            Client::unconnected(deployment, Identity::default(), role, options)
        };
        let failed = |e: penstock_client::Error| Why {
            no_key: connect::no_key(deployment).is_some(),
            ..Why::of(&e)
        };
        let may = Wallet::new(deployment, None).administrators();
        let administrator = may.is_ok_and(|shown| shown.signed().statement.administrator);
        let clients = Clients {
            own: client(Role::Client).map_err(failed)?,
            administrator: administrator
                .then(|| client(Role::Admin))
                .transpose()
                .map_err(failed)?,
        };
        let questions = BEFORE_DATA + deployment.servers.len();
        Ok(Inquirer {
            deployment: deployment.clone(),
            clients: Arc::new(clients),
            patience: PATIENCE,
            pending: std::iter::repeat_with(Arc::default)
                .take(questions)
                .collect(),
        })
    }

    /// Waits so long for each round instead.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Inquirer {
        Inquirer { patience, ..self }
    }

    /// Who uses the servers.
    pub fn programs(&self) -> Listed {
        let question: Question<Answer<Listed>> =
            Box::new(|clients| clients.ask(Client::programs).map(Listed::new));
        let mut answers = self.put(vec![question]);
        answers
            .pop()
            .flatten()
            .and_then(Result::ok)
            .unwrap_or_default()
    }

    /// The state of all servers.
    pub fn states(&self) -> Round<DataStatus> {
        self.round(|client, server| client.data_status_of(server))
    }

    /// The ledgers of all data servers.
    pub fn ledgers(&self) -> Round<LedgerStatus> {
        self.round(|client, server| client.ledger_of(server))
    }

    /// Both.
    pub fn states_and_ledgers(&self) -> Round<(DataStatus, LedgerStatus)> {
        self.round(|client, server| Ok((client.data_status_of(server)?, client.ledger_of(server)?)))
    }

    fn round<T: Send + 'static>(
        &self,
        question: fn(&Client, ServerId) -> Result<T, penstock_client::Error>,
    ) -> Round<T> {
        let mut questions: Vec<Question<Said<T>>> = vec![
            Box::new(|clients| {
                let told = clients.ask(Client::programs);
                Said::Programs(told.map(Listed::new))
            }),
            Box::new(|clients| {
                let own = clients.own.meta_status();
                Said::Meta(own.map_err(|e| Why::of(&e)))
            }),
        ];
        for server in self.deployment.server_ids() {
            questions.push(Box::new(move |clients| {
                Said::Data(clients.ask(|client| question(client, server)))
            }));
        }
        let silent = || Why::silent(self.patience);
        let mut round = Round {
            programs: Listed::default(),
            meta: Err(silent()),
            data: Vec::new(),
        };
        for (k, said) in self.put(questions).into_iter().enumerate() {
            match said {
                Some(Said::Programs(Ok(listed))) => round.programs = listed,
                Some(Said::Meta(answer)) => round.meta = answer,
                Some(Said::Data(answer)) => round.data.push(answer),
                None if k >= BEFORE_DATA => round.data.push(Err(silent())),
                Some(Said::Programs(Err(_))) | None => {}
            }
        }
        round
    }

    /// Puts questions all at once; `None`: no answer in time. The n-th is the n-th of [`Inquirer::pending`].
    fn put<T: Send + 'static>(&self, questions: Vec<Question<T>>) -> Vec<Option<T>> {
        let count = questions.len();
        let (tell, told) = mpsc::channel();
        let deadline = Instant::now() + self.patience;
        let queue: Arc<Vec<_>> = Arc::new(
            questions
                .into_iter()
                .map(|question| std::sync::Mutex::new(Some(question)))
                .collect(),
        );
        let next = Arc::new(AtomicUsize::new(0));
        for _ in 0..count.min(AT_ONCE) {
            let (queue, next, tell) = (queue.clone(), next.clone(), tell.clone());
            let (clients, pending) = (self.clients.clone(), self.pending.clone());
            let work = move || {
                while Instant::now() < deadline {
                    let k = next.fetch_add(1, SeqCst);
                    let Some(question) = queue.get(k) else { return };
                    let question = question.lock().ok().and_then(|mut q| q.take());
                    let Some(question) = question else { return };
                    if pending[k].swap(true, SeqCst) {
                        // It has not answered the last time yet.
                        continue;
                    }
                    let answer = question(&clients);
                    pending[k].store(false, SeqCst);
                    if tell.send((k, answer)).is_err() {
                        return;
                    }
                }
            };
            // Without a thread the question stays unanswered.
            let _ = std::thread::Builder::new().name("ask".into()).spawn(work);
        }
        drop(tell);
        let mut answers: Vec<Option<T>> = std::iter::repeat_with(|| None).take(count).collect();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match told.recv_timeout(left) {
                Ok((k, answer)) => answers[k] = Some(answer),
                Err(_) => return answers,
            }
        }
    }
}

/// The state of all servers, asked once; for each that says nothing, why.
pub fn states(deployment: &Deployment) -> Round<DataStatus> {
    states_by(&Inquirer::new(deployment), deployment)
}

/// The same by one who may have asked before.
pub fn states_by(inquirer: &Answer<Inquirer>, deployment: &Deployment) -> Round<DataStatus> {
    let mut round = match inquirer {
        Ok(inquirer) => inquirer.states(),
        Err(why) => {
            let others = Why {
                text: "not asked: there is no usable client key".into(),
                ..why.clone()
            };
            Round {
                programs: Listed::default(),
                meta: Err(why.clone()),
                data: vec![Err(others); deployment.servers.len()],
            }
        }
    };
    round.explain(deployment);
    round
}

impl<T: Clone> Round<T> {
    /// Takes the former answer of a server that is silent now, as what a later one is compared with.
    pub fn remember(&mut self, former: &Round<T>) {
        for (answer, former) in self.data.iter_mut().zip(&former.data) {
            if answer.is_err() && former.is_ok() {
                *answer = former.clone();
            }
        }
    }
}

impl<T> Round<T> {
    /// Says more of servers of this host.
    pub fn explain(&mut self, deployment: &Deployment) {
        if let Err(why) = &mut self.meta {
            why.explain(deployment, Which::Meta, &deployment.meta.address);
        }
        for (server, answer) in deployment.servers.iter().zip(&mut self.data) {
            if let Err(why) = answer {
                why.explain(deployment, Which::Data(server.id), &server.address);
            }
        }
    }
}
