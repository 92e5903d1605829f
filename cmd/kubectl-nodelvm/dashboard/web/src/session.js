// The session with which this page reads data. The browser keeps it apart for each port of 127.0.0.1, which a cookie would not be.

const key = "session";

// begin exchanges the token of the printed URL, which works once, for the session.
export async function begin() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", "/");
  const reply = await fetch(`/api/session?${new URLSearchParams({ token })}`);
  if (reply.ok) localStorage.setItem(key, await reply.text());
}

// dataURL is the address of a document, with the session.
export const dataURL = (path, query = new URLSearchParams()) => {
  query.set("session", localStorage.getItem(key) ?? "");
  return `${path}?${query}`;
};
