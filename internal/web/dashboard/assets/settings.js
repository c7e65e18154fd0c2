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
})();
