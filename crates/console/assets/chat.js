// The chat: sends a message, and shows the events of its answer as they come. Whatever is said is text, never markup.
"use strict";

const at = (id) => document.getElementById(id);
const [form, talk, message, state, send, stop] = ["ask", "talk", "message", "state", "send", "stop"].map(at);
let conversation = null;
let running = null;
// The message of the latest turn, and the turn's id once it is known.
let asked = null;

// Characters that people do not see, or that change what they see, shown as marks such as ‹U+202E›. The console fills
// in the classes from the definition that its own pages use; the first alternatives belong to ordinary writing.
const [INVISIBLE, PICTOGRAPH, JOINING] = ["{{INVISIBLE}}", "{{PICTOGRAPH}}", "{{JOINING}}"];
const MARKED = new RegExp([
  "\\r(?=\\n)",
  `(?<=[${PICTOGRAPH}])[\\u{fe0e}\\u{fe0f}]`,
  "(?<=[#*0-9])[\\u{fe0e}\\u{fe0f}](?=\\u{20e3})",
  `(?<=[${JOINING}])[\\u{200c}\\u{200d}](?=[${JOINING}])`,
  `(?<=[${PICTOGRAPH}]\\u{fe0f}?)\\u{200d}(?=[${PICTOGRAPH}])`,
  `([${INVISIBLE}])`,
].join("|"), "gu");

function mark(text) {
  const name = (found) => found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return String(text).replace(MARKED, (whole, found) => found === undefined ? whole : `‹U+${name(found)}›`);
}

// An event of the stream. Numbers keep the digits that they were sent with, where the browser can tell.
function parse(line) {
  return JSON.parse(line, (_, value, context) => {
    const isExact = typeof value !== "number" || context?.source === undefined || String(value) === context.source;
    return isExact || !JSON.rawJSON ? value : JSON.rawJSON(context.source);
  });
}

function add(parent, tag, text, kind) {
  const made = document.createElement(tag);
  made.textContent = mark(text);
  if (kind) made.className = kind;
  parent.append(made);
  talk.scrollTop = talk.scrollHeight;
  return made;
}

function shown(content) {
  return typeof content === "string" ? content : JSON.stringify(content, null, 2) ?? "";
}

// What a call was made with, or gave: shut until somebody wants to see it.
function box(title, content) {
  const made = document.createElement("details");
  add(made, "summary", title);
  add(made, "pre", shown(content));
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

// A call that waits for this person: all of it open, and two buttons alike, of which one is pressed once.
function decide(event) {
  const asked = add(talk, "section", "", "approval");
  asked.setAttribute("role", "group");
  asked.setAttribute("aria-label", "A call that waits for your decision");
  add(asked, "p", `${event.tool_name} waits for your decision`, "title");
  add(asked, "p", "It runs with these arguments and no others:", "quiet");
  add(asked, "pre", shown(event.arguments)).tabIndex = 0;
  add(asked, "p", `The call does not run without your decision. You can decide until ${new Date(event.expires_at).toLocaleString()}.`, "quiet");
  const bar = add(asked, "div", "", "bar");
  for (const [decision, words] of [["refuse", "Refuse"], ["approve", "Let it run"]]) {
    const button = add(bar, "button", words, "plain");
    button.type = "button";
    button.addEventListener("click", () => {
      bar.remove();
      add(asked, "p", decision === "approve" ? "You let it run." : "You refused it.", "title");
      ask(`/console/chat/approvals/${encodeURIComponent(event.approval_id)}`, { decision });
    });
  }
}

// A call that waits for somebody's approval at the gateway: all of it open, and a button that has the same turn go on.
function wait(event) {
  const waiting = add(talk, "section", "", "approval");
  waiting.setAttribute("role", "group");
  waiting.setAttribute("aria-label", "A call that waits for an approval");
  add(waiting, "p", `${event.tool_name} requires an approval`, "title");
  add(waiting, "p", event.message, "quiet");
  add(waiting, "pre", shown(event.arguments)).tabIndex = 0;
  const bar = add(waiting, "div", "", "bar");
  const button = add(bar, "button", "Go on", "plain");
  button.type = "button";
  const turn = asked;
  button.addEventListener("click", () => {
    if (running || !turn?.message_id) return;
    bar.remove();
    ask("/console/chat/message", turn, event.id - 1);
  });
}

const reasons = {
  length: "The answer was cut: the model came to its limit.",
  content_filter: "A filter took the answer.",
  refused: "The question was refused; nothing was kept.",
  approval_required: "Waiting for an approval.",
  error: "It failed.",
};

// Makes what the stream says visible. The answer so far is one element, begun anew after each call of a tool.
function teller(after) {
  let answer = null;
  let said = "";
  return (event) => {
    // A turn that goes on is told from its beginning.
    if (event.id <= after) return;
    if (event.type !== "token") answer = null;
    switch (event.type) {
      case "token":
        if (!answer) [answer, said] = [add(talk, "article", ""), ""];
        said += event.text;
        answer.textContent = mark(said);
        talk.scrollTop = talk.scrollHeight;
        break;
      case "tool_call": box(`Calls ${event.tool_name}`, event.arguments); break;
      case "tool_result":
        box(`${event.tool_name} ${event.success ? "answered" : "failed"}`, event.success ? event.data : event.error ?? "");
        break;
      case "approval_required": decide(event); break;
      case "approval_pending": wait(event); break;
      case "error": add(talk, "p", event.message, "notice bad"); break;
      case "done":
        if (event.conversation_id) name(event.conversation_id);
        if (asked) Object.assign(asked, { message_id: event.turn_id, conversation_id: event.conversation_id ?? undefined });
        state.textContent = reasons[event.finish_reason] ?? "";
        break;
    }
  };
}

async function ask(path, body, after = 0) {
  running = new AbortController();
  busy(true);
  state.textContent = "Working…";
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", "Wardgate-Person": form.dataset.person },
      body: JSON.stringify(body),
      signal: running.signal,
    });
    const type = response.headers.get("Content-Type") ?? "";
    if (!response.ok || !type.startsWith("application/x-ndjson")) {
      const said = type.startsWith("application/json") ? (await response.json()).error?.message : null;
      throw new Error(said ?? (response.status === 401 ? "Your session has ended: sign in again." : `The request failed (${response.status}).`));
    }
    const tell = teller(after);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      // An empty line only says that the stream lives.
      for (const line of lines) if (line) tell(parse(line));
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
    asked = body;
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
