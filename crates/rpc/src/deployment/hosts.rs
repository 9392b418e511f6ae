//! The hosts of a deployment's servers, as the deployment file names them.
use super::Deployment;
use penstock_layout::ServerId;

/// Longest name of a host (RFC 1035, section 2.3.4).
const MAX_NAME: usize = 253;

/// Checks a host name. Names become arguments of remote commands: a name must not look like an option or contain
/// characters special to a shell.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-:".contains(&b);
    let good = (1..=MAX_NAME).contains(&name.len())
        && !name.starts_with(['-', '.', ':'])
        && name.bytes().all(plain);
    if good {
        Ok(())
    } else {
        Err(format!(
            "{:?} is no name of a host: letters, digits and . - _ : are allowed, {MAX_NAME} at most, a letter or digit first",
            name.chars().take(80).collect::<String>()
        ))
    }
}

/// Either all servers have hosts, or none.
pub(super) fn validate(deployment: &Deployment) -> Result<(), String> {
    let named = deployment.servers.iter().map(|s| &s.host);
    let named: Vec<_> = named.chain([&deployment.meta.host]).collect();
    named
        .iter()
        .copied()
        .flatten()
        .try_for_each(|name| check_name(name))?;
    match named.iter().filter(|host| host.is_some()).count() {
        n if n == 0 || n == named.len() => Ok(()),
        _ => Err("host: some servers have one and others have none; name the host of each".into()),
    }
}

impl Deployment {
    /// The hosts of its servers, the metadata server's first. Empty if all servers are on the host of the file.
    pub fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = self.meta.host.as_deref().into_iter().collect();
        let mut seen: std::collections::HashSet<&str> = hosts.iter().copied().collect();
        for host in self.servers.iter().filter_map(|s| s.host.as_deref()) {
            if seen.insert(host) {
                hosts.push(host);
            }
        }
        hosts
    }

    /// The host of a server, if the file names it. `None` stands for the metadata server.
    pub fn host(&self, id: Option<ServerId>) -> Option<&str> {
        match id {
            None => self.meta.host.as_deref(),
            Some(id) => self.server(id)?.host.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_are_plain_words() {
        for good in ["a", "node-1.cluster", "10.0.0.1", "fe80:1", "n_1"] {
            check_name(good).unwrap();
        }
        let long = "x".repeat(254);
        for bad in [
            "",
            "-oProxyCommand=x",
            "a b",
            "a;b",
            "$(x)",
            "a\n",
            "ü",
            "user@host",
            "a/b",
            &long,
        ] {
            let error = check_name(bad).unwrap_err();
            assert!(error.contains("is no name of a host"), "{error}");
        }
    }
}
