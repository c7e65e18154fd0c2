// Copy buttons, and calls from the page with the reader's own key. Everything is readable without it.
"use strict";

const add = (parent, name, attributes = {}, text = "") => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  parent.append(element);
  return element;
};

for (const pre of document.querySelectorAll("pre")) {
  if (!navigator.clipboard) break; // browsers have it on secure origins only
  const box = document.createElement("div");
  box.className = "code";
  pre.replaceWith(box);
  box.append(pre);
  const button = add(box, "button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(pre.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

let key = ""; // stays in this page: it isn't stored

for (const form of document.querySelectorAll("form.try")) {
  form.hidden = false;
  const button = form.querySelector("button");
  const { path, method, body, confirm } = form.dataset;
  const names = [...path.matchAll(/\{(\w+)\}/g)].map((m) => m[1]);
  let inputs = null;
  const field = (name, attributes, kind = "input") => add(add(form, "label", kind === "textarea" ? { class: "wide" } : {}, name), kind, { autocomplete: "off", spellcheck: "false", ...attributes });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!inputs) {
      form.classList.add("open");
      inputs = { key: field("API key", { type: "password", required: "", name: "key" }) };
      inputs.key.value = key;
      for (const name of names) inputs[name] = field(name, { type: "text", required: "", name });
      if (body) {
        inputs.body = field("Body", { name: "body", rows: String(Math.min(12, body.split("\n").length + 1)), required: "" }, "textarea");
        inputs.body.value = body;
      }
      if (confirm) inputs.confirm = field(`Type ${confirm} to confirm`, { type: "text", required: "", name: "confirm", pattern: confirm });
      form.append(button);
      button.textContent = method === "GET" ? "Send request" : `Send ${method} request`;
      inputs.output = add(form, "pre", { tabindex: "0", role: "status", hidden: "" });
      (key && names.length ? inputs[names[0]] : inputs.key).focus();
      return;
    }
    key = inputs.key.value.trim();
    inputs.output.hidden = false;
    if (confirm && inputs.confirm.value !== confirm) { inputs.output.textContent = `Type ${confirm} to confirm.`; return; }
    const request = { method, headers: { Authorization: `Bearer ${key}` }, credentials: "omit" };
    if (inputs.body) {
      const variable = inputs.body.value.match(/\$[A-Z][A-Z_]+/);
      if (variable) { inputs.output.textContent = `Replace ${variable[0]} in the body first.`; return; }
      try { JSON.parse(inputs.body.value); } catch (error) { inputs.output.textContent = `The body is not JSON: ${error.message}`; return; }
      request.body = inputs.body.value;
      request.headers["Content-Type"] = "application/json";
    }
    inputs.output.textContent = "Loading…";
    button.disabled = true;
    try {
      const response = await fetch(path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(inputs[name].value.trim())), request);
      let text = (await response.text()).slice(0, 20000);
      try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON */ }
      inputs.output.textContent = `${response.status} ${response.statusText}\n${text}`;
    } catch (error) {
      inputs.output.textContent = `The request failed: ${error.message}`;
    }
    button.disabled = false;
    if (confirm) inputs.confirm.value = ""; // each time anew
  });
}

// Results as one types: the first of the page that the form would open.
const query = document.getElementById("q");
if (query) {
  const box = add(query.form, "div", { class: "found", "aria-live": "polite", hidden: "" });
  let asked = 0;
  let timer = 0;
  const close = () => { asked++; clearTimeout(timer); box.hidden = true; };
  const look = async () => {
    const mine = ++asked;
    const text = query.value.trim();
    if (!text) { box.hidden = true; return; }
    try {
      const response = await fetch(`/docs?q=${encodeURIComponent(text)}`, { credentials: "omit" });
      if (!response.ok || mine !== asked) return;
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      if (mine !== asked) return;
      const hits = [...page.querySelectorAll("main ul.ops > li > a")].slice(0, 7);
      box.replaceChildren();
      for (const hit of hits) add(box, "a", { href: hit.getAttribute("href") }, hit.textContent);
      if (!hits.length) add(box, "p", {}, "No results");
      box.hidden = false;
    } catch { /* the form works without this */ }
  };
  query.setAttribute("autocomplete", "off");
  query.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 150); });
  query.form.addEventListener("focusout", (event) => { if (!query.form.contains(event.relatedTarget)) close(); });
  query.form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { close(); query.focus(); return; }
    if (box.hidden || (event.key !== "ArrowDown" && event.key !== "ArrowUp")) return;
    const all = [query, ...box.querySelectorAll("a")];
    const next = all[all.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) { event.preventDefault(); next.focus(); }
  });
}

if (matchMedia("(max-width: 56rem)").matches) document.querySelector("details.menu")?.removeAttribute("open");
