// Shows the token, which stands behind the address's #, and goes to the page.
"use strict";
const token = location.hash.slice(1);
// Neither the history nor the address bar keeps it.
history.replaceState(null, "", "/");
const say = (text) => {
  document.getElementById("state").textContent = text;
};
const enter = async () => {
  if (token === "") return say("The address lacks its token: open the one that `penstock view` gave.");
  const answer = await fetch("/enter", { method: "POST", headers: { "Content-Type": "text/plain" }, body: token });
  const text = await answer.text();
  return answer.ok ? location.replace(text) : say(text);
};
enter().catch(() => say("`penstock view` does not answer. Does it still run?"));
