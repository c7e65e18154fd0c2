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
  const names = [...form.dataset.path.matchAll(/\{(\w+)\}/g)].map((m) => m[1]);
  let inputs = null;
  const field = (name, type) => add(add(form, "label", {}, name), "input", { type, required: "", autocomplete: "off", name });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!inputs) {
      inputs = { key: field("API key", "password") };
      inputs.key.value = key;
      for (const name of names) inputs[name] = field(name, "text");
      form.append(button);
      button.textContent = "Send request";
      inputs.output = add(form, "pre", { tabindex: "0", hidden: "" });
      (key && names.length ? inputs[names[0]] : inputs.key).focus();
      return;
    }
    key = inputs.key.value.trim();
    const path = form.dataset.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(inputs[name].value.trim()));
    inputs.output.hidden = false;
    inputs.output.textContent = "Loading…";
    try {
      const response = await fetch(path, { headers: { Authorization: `Bearer ${key}` }, credentials: "omit" });
      let text = (await response.text()).slice(0, 20000);
      try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON */ }
      inputs.output.textContent = `${response.status} ${response.statusText}\n${text}`;
    } catch (error) {
      inputs.output.textContent = `The request failed: ${error.message}`;
    }
  });
}

if (matchMedia("(max-width: 56rem)").matches) document.querySelector("details.menu")?.removeAttribute("open");
