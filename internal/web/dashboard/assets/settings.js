// What makes setting up a site quicker: pasted .env files, names that look secret.
'use strict';
(() => {
  const env = document.querySelector('[data-env-import]');
  if (env) {
    const secretName = new RegExp(env.dataset.secretName, 'i'), publicName = new RegExp(env.dataset.publicName, 'i'), secretValue = new RegExp(env.dataset.secretValue);
    const key = env.elements.key, value = env.elements.value, secret = env.elements.secret;

    // A name that looks secret ticks the box, until it is ticked or cleared by hand.
    let chosen = secret.checked;
    secret.addEventListener('change', () => { chosen = true; });
    const guess = () => { if (!chosen) secret.checked = secretName.test(key.value) && !publicName.test(key.value) || secretValue.test(value.value); };
    key.addEventListener('input', guess);
    value.addEventListener('input', guess);

    // A pasted file goes to the page that shows what it would change. One line that is pasted into the
    // name fills in both fields. In other fields one line is text, and so is the value of a variable that has a name.
    const line = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$/;
    document.addEventListener('paste', (e) => {
      const text = e.clipboardData ? e.clipboardData.getData('text/plain') : '';
      const lines = text.split(/\r?\n/).filter((l) => l.trim() && !l.trim().startsWith('#'));
      if (!lines.length || !line.test(lines[0])) return;
      const field = /^(INPUT|TEXTAREA)$/.test(e.target.tagName) ? e.target : null;
      if (lines.length === 1 && field === key) {
        e.preventDefault();
        const [, name, rest] = line.exec(lines[0]);
        key.value = name;
        value.value = rest.trim().replace(/^(["'])(.*)\1$/, '$2');
        guess();
        value.focus();
        return;
      }
      if (field && (lines.length < 2 || field === value && key.value || field !== key && !line.test(lines[1]))) return;
      e.preventDefault();
      const form = document.createElement('form');
      form.method = 'post'; form.action = env.dataset.envImport; form.hidden = true;
      for (const [name, v] of [['step', 'preview'], ['text', text]]) {
        const area = document.createElement('textarea');
        area.name = name; area.value = v; form.append(area);
      }
      document.body.append(form);
      form.requestSubmit();
    });
  }

  // Settings: one bar saves what has changed in all forms of the page. Without scripts each form has its button.
  const forms = [...document.querySelectorAll('form[data-settings]')];
  if (!forms.length || document.querySelector('[data-test="problem"], form[data-settings] [aria-invalid="true"]')) return; // what was refused has its own button
  const bar = document.createElement('div');
  bar.className = 'save-bar'; bar.hidden = true; bar.dataset.test = 'save-bar';
  bar.setAttribute('role', 'region'); bar.setAttribute('aria-label', 'Unsaved changes');
  const count = document.createElement('output');
  const button = (text, cls, test, act) => {
    const b = document.createElement('button');
    b.type = 'button'; b.className = cls; b.textContent = text; b.dataset.test = test;
    b.addEventListener('click', act);
    return b;
  };
  const changed = (el) => el.options ? [...el.options].some((o) => o.selected !== o.defaultSelected) && el.value !== (el.querySelector('option[selected]') || el.options[0]).value
    : el.type === 'checkbox' || el.type === 'radio' ? el.checked !== el.defaultChecked : el.type !== 'hidden' && el.type !== 'submit' && el.value !== el.defaultValue;
  const changes = (f) => [...f.elements].filter((el) => el.name && changed(el)).length;
  const show = () => {
    const n = forms.reduce((sum, f) => sum + changes(f), 0);
    bar.hidden = n === 0;
    count.textContent = n === 1 ? '1 unsaved change' : n + ' unsaved changes';
  };
  const save = async () => {
    const dirty = forms.filter(changes);
    if (!dirty.every((f) => f.reportValidity())) return;
    for (const f of dirty.slice(0, -1)) {
      const r = await fetch(f.action, { method: 'POST', body: new URLSearchParams(new FormData(f)), redirect: 'manual' }).catch(() => null);
      if (!r || r.type !== 'opaqueredirect') { f.requestSubmit(); return; } // its page says what is wrong
    }
    if (dirty.length) dirty.at(-1).requestSubmit();
  };
  bar.append(count, button('Discard', 'button', 'discard', () => { for (const f of forms) f.reset(); show(); }), button('Save changes', 'button primary', 'save-all', save));
  for (const f of forms) {
    f.classList.add('with-bar');
    f.addEventListener('input', show);
    f.addEventListener('change', show);
  }
  forms.at(-1).closest('section').after(bar);
  show();
})();
