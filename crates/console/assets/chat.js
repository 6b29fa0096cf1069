// The chat: sends a message, and shows the events of its answer as they come. Whatever is said is text, never markup.
"use strict";

const at = (id) => document.getElementById(id);
const [form, talk, message, state, send, stop] = ["ask", "talk", "message", "state", "send", "stop"].map(at);
let conversation = null;
let running = null;

function add(parent, tag, text, kind) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  parent.append(made);
  talk.scrollTop = talk.scrollHeight;
  return made;
}

// What a call was made with, or gave: shut until somebody wants to see it.
function box(title, content) {
  const made = document.createElement("details");
  add(made, "summary", title);
  add(made, "pre", typeof content === "string" ? content : JSON.stringify(content, null, 2));
  talk.append(made);
  talk.scrollTop = talk.scrollHeight;
}

function name(id) {
  conversation = id;
  at("conversation").textContent = id ?? "new";
}

function busy(is) {
  send.disabled = is;
  stop.disabled = !is;
  if (!is) running = null;
}

// A call that waits for this person: two buttons, of which one is pressed once.
function decide(event) {
  box(`${event.tool_name} waits for you, until ${event.expires_at}`, event.arguments);
  const bar = add(talk, "div", "", "bar");
  for (const [decision, words] of [["approve", "Let it run"], ["refuse", "Refuse"]]) {
    const button = add(bar, "button", words, decision === "approve" ? "" : "plain");
    button.type = "button";
    button.addEventListener("click", () => {
      bar.remove();
      add(talk, "p", words, "quiet");
      ask(`/console/chat/approvals/${encodeURIComponent(event.approval_id)}`, { decision });
    });
  }
}

const reasons = {
  length: "The answer was cut: the model came to its limit.",
  content_filter: "A filter took the answer.",
  refused: "The question was refused; nothing was kept.",
  approval_required: "Waiting for your decision.",
  error: "It failed.",
};

// Makes what the stream says visible. The answer so far is one element, begun anew after each call of a tool.
function teller() {
  let answer = null;
  return (event) => {
    if (event.type !== "token") answer = null;
    switch (event.type) {
      case "token":
        answer ??= add(talk, "article", "");
        answer.textContent += event.text;
        talk.scrollTop = talk.scrollHeight;
        break;
      case "tool_call": box(`Calls ${event.tool_name}`, event.arguments); break;
      case "tool_result":
        box(`${event.tool_name} ${event.success ? "answered" : "failed"}`, event.success ? event.data : event.error ?? "");
        break;
      case "approval_required": decide(event); break;
      case "error": add(talk, "p", event.message, "notice bad"); break;
      case "done":
        if (event.conversation_id) name(event.conversation_id);
        state.textContent = reasons[event.finish_reason] ?? "";
        break;
    }
  };
}

async function ask(path, body) {
  running = new AbortController();
  busy(true);
  state.textContent = "Working…";
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: running.signal,
    });
    const type = response.headers.get("Content-Type") ?? "";
    if (!response.ok || !type.startsWith("application/x-ndjson")) {
      const said = type.startsWith("application/json") ? (await response.json()).error?.message : null;
      throw new Error(said ?? (response.status === 401 ? "Your session has ended: sign in again." : `It did not work (${response.status}).`));
    }
    const tell = teller();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      // An empty line only says that the stream lives.
      for (const line of lines) if (line) tell(JSON.parse(line));
    }
    if (state.textContent === "Working…") state.textContent = "The answer broke off.";
  } catch (error) {
    state.textContent = error.name === "AbortError" ? "Stopped." : "";
    if (error.name !== "AbortError") add(talk, "p", error.message, "notice bad");
  } finally {
    busy(false);
    message.focus();
  }
}

if (form) {
  at("unscripted").remove();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const said = message.value.trim();
    if (!said || running) return;
    add(talk, "article", said, "own");
    message.value = "";
    const body = { message: said, model: at("assistant").value };
    if (conversation) body.conversation_id = conversation;
    ask("/console/chat/message", body);
  });
  message.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  stop.addEventListener("click", () => running?.abort());
  at("anew").addEventListener("click", () => {
    running?.abort();
    name(null);
    talk.replaceChildren();
    state.textContent = "";
    message.focus();
  });
}
