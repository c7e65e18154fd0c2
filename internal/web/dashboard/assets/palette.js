// The command palette, and what single keys do. Everything in it is a link or a button of
// some page: without scripts nothing is missing.
'use strict';
(() => {
  const mac = /Mac|iPhone|iPad/.test(navigator.platform);
  for (const k of document.querySelectorAll('.seek kbd')) k.textContent = mac ? '⌘K' : 'Ctrl K';

  const make = (tag, props, ...children) => {
    const el = document.createElement(tag);
    for (const [k, v] of Object.entries(props || {})) if (k in el) el[k] = v; else el.setAttribute(k, v);
    el.append(...children);
    return el;
  };
  const store = { // a browser may keep nothing
    get: () => { try { return JSON.parse(localStorage.getItem('recent')) || []; } catch { return []; } },
    set: (v) => { try { localStorage.setItem('recent', JSON.stringify(v)); } catch { /* then not */ } },
  };
  const go = (path) => { location.href = path; };
  const team = document.body.dataset.team; // the one that the page is about; pages of its account are asked for with it
  const ofTeam = (path) => (team ? path + (path.includes('?') ? '&' : '?') + 'team=' + encodeURIComponent(team) : path);

  // The pages that were visited last, by their breadcrumb.
  const crumbs = [...document.querySelectorAll('.crumbs li > :is(a, span)')].map((c) => c.textContent.trim());
  const inAddress = new URLSearchParams(location.search).get('team');
  const here = location.pathname + (inAddress ? '?team=' + encodeURIComponent(inAddress) : '');
  if (crumbs.length > 1) {
    const now = { name: crumbs.slice(1).join(' / '), path: here };
    store.set([now, ...store.get().filter((p) => p.path !== now.path)].slice(0, 8));
  }

  const pages = [...document.querySelectorAll('.rail-link')].map((a) => ({ name: a.textContent.trim(), hint: a.closest('.group')?.querySelector('.group-title')?.textContent || '', run: () => go(a.getAttribute('href')) }));
  const crumbSite = document.querySelector('.rail-site');
  if (crumbSite) pages.push(
    { name: 'Webhooks', hint: 'Account', run: () => go(ofTeam('/webhooks')) }, { name: 'Account', hint: '', run: () => go('/account') }, { name: 'API keys', hint: 'Account', run: () => go(ofTeam('/account/keys')) });
  const actions = () => [
    ...[...document.querySelectorAll('.site-top .head-actions :is(a, button), .dep-head .head-actions > a, .dep-head .head-actions > form > button')].map((b) => ({ name: b.textContent.trim() + ' ' + crumbSite.textContent.trim(), hint: 'This site', run: () => b.click() })),
    { name: 'New site', hint: '', run: () => go(ofTeam('/new')) },
    { name: 'Create API key', hint: 'Account', run: () => go(ofTeam('/account/keys/new')) },
    ...(document.getElementById('api') ? [{ name: 'Show API requests of this page', hint: '', run: () => document.getElementById('api').showPopover() }] : []),
    ...[...document.querySelectorAll('.rail [data-theme-form] button')].map((b) => ({ name: 'Theme: ' + b.value, hint: '', run: () => b.click() })),
    { name: 'Keyboard shortcuts', hint: '?', run: () => help() },
    ...[...document.querySelectorAll('[data-test="sign-out"]')].map((b) => ({ name: 'Sign out', hint: '', run: () => b.click() })),
  ];

  let dialog, input, list, options = [], at = 0, asked, typing, scope = '', pressed = false;
  const build = () => {
    input = make('input', { type: 'text', placeholder: 'Search sites, pages and actions', autocomplete: 'off', spellcheck: false, role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'palette-list', 'aria-autocomplete': 'list', 'aria-label': 'Search sites, pages and actions' });
    list = make('div', { id: 'palette-list', className: 'palette-list', role: 'listbox', 'aria-label': 'Results' });
    const foot = make('div', { className: 'palette-foot', 'aria-hidden': 'true' }, make('span', {}, make('kbd', {}, '↑'), ' ', make('kbd', {}, '↓'), ' Move'), make('span', {}, make('kbd', {}, '↵'), ' Open'), make('span', {}, make('kbd', {}, 'Esc'), ' Close'), make('span', {}, make('kbd', {}, '?'), ' Shortcuts'));
    dialog = make('dialog', { className: 'palette', 'aria-label': 'Command palette', 'data-test': 'palette-dialog' }, input, list, foot);
    document.body.append(dialog);
    input.addEventListener('input', () => { show(); clearTimeout(typing); typing = setTimeout(seek, 120); });
    input.addEventListener('keydown', (e) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
      if (step) { e.preventDefault(); mark((at + step + options.length) % (options.length || 1)); }
      if (e.key === 'Enter') { e.preventDefault(); choose(options[at]); }
      if (e.key === 'Tab') e.preventDefault();
      if (e.key === 'Escape') { e.preventDefault(); shut(); }
    });
    list.addEventListener('pointerdown', () => { pressed = true; });
    list.addEventListener('click', (e) => { const el = e.target.closest('.palette-item'); if (el) choose(options.find((o) => o.el === el)); });
    list.addEventListener('mousemove', (e) => { const el = e.target.closest('.palette-item'); const i = options.findIndex((o) => o.el === el); if (i >= 0 && i !== at) mark(i); });
    dialog.addEventListener('click', (e) => { if (e.target === dialog) shut(); });
    for (const end of ['pointerup', 'pointercancel']) addEventListener(end, () => { if (pressed) setTimeout(() => { pressed = false; show(); }); }); // after the click
  };
  const shut = () => { input.blur(); dialog.close(); }; // a field that is hidden keeps the focus until the next frame, and with it the next key
  const choose = (o) => { if (!o) return; shut(); o.run(); };
  const mark = (i) => {
    options[at]?.el.setAttribute('aria-selected', 'false');
    at = i;
    const el = options[at]?.el;
    if (!el) { input.removeAttribute('aria-activedescendant'); return; }
    el.setAttribute('aria-selected', 'true');
    input.setAttribute('aria-activedescendant', el.id);
    el.scrollIntoView({ block: 'nearest' });
  };

  // What is typed matches a name that has all its words, in any order.
  let sites = [];
  const show = () => {
    if (pressed) return; // an entry that is replaced under the button never hears of its click
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (o) => words.every((w) => (o.name + ' ' + o.hint).toLowerCase().includes(w));
    const groups = scope === 'sites' ? [['Sites', sites.filter(fits)]] : [
      ['Recent', words.length ? [] : store.get().filter((p) => p.path !== here).slice(0, 5).map((p) => ({ name: p.name, hint: '', run: () => go(p.path) }))],
      ['Sites', sites.filter(fits)],
      ['Pages', pages.filter(fits)],
      ['Actions', actions().filter(fits)],
    ];
    options = []; list.replaceChildren();
    for (const [name, entries] of groups) {
      if (!entries.length) continue;
      const title = make('div', { className: 'palette-group', id: 'palette-' + name }, name);
      const group = make('div', { role: 'group', 'aria-labelledby': title.id }, title);
      for (const o of entries) {
        o.el = make('div', { className: 'palette-item', role: 'option', id: 'palette-' + options.length, 'aria-selected': 'false' }, make('span', {}, o.name));
        if (o.hint) o.el.append(make('span', { className: 'soft' }, o.hint));
        group.append(o.el);
        options.push(o);
      }
      list.append(group);
    }
    if (!options.length) list.append(make('p', { className: 'palette-none' }, 'No results'));
    mark(0);
  };
  const seek = async () => {
    if (asked) asked.abort();
    asked = new AbortController();
    try {
      const r = await fetch(ofTeam('/find?q=' + encodeURIComponent(input.value.trim())), { signal: asked.signal, headers: { Accept: 'application/json' }, redirect: 'error' });
      if (!r.ok) return;
      sites = (await r.json()).map((s) => ({ name: s.name, hint: s.host, run: () => go(s.path) }));
      show();
    } catch { /* a later search, or no network: what is shown stays */ }
  };
  const open = (what) => {
    if (!dialog) build();
    scope = what || '';
    input.value = '';
    input.placeholder = scope ? 'Search sites' : 'Search sites, pages and actions';
    show();
    if (!dialog.open) dialog.showModal();
    input.focus();
    seek();
  };
  for (const b of document.querySelectorAll('[data-palette]')) b.addEventListener('click', () => open(b.dataset.palette));

  let keys;
  const help = () => {
    if (!keys) {
      const rows = [[[mac ? '⌘' : 'Ctrl', 'K'], 'Command palette'], [['/'], 'Search'], [['?'], 'Keyboard shortcuts'], ...[...document.querySelectorAll('[data-go]')].map((a) => [['g', a.dataset.go], a.textContent.trim()])];
      const dl = make('dl', { className: 'keys' });
      for (const [combo, name] of rows) dl.append(make('dt', {}, name), make('dd', {}, ...combo.map((k) => make('kbd', {}, k))));
      const close = make('button', { type: 'button', className: 'button' }, 'Close');
      keys = make('dialog', { className: 'dialog', 'aria-label': 'Keyboard shortcuts', 'data-test': 'shortcuts' }, make('h2', {}, 'Keyboard shortcuts'), dl, make('div', { className: 'actions' }, close));
      close.addEventListener('click', () => keys.close());
      keys.addEventListener('click', (e) => { if (e.target === keys) keys.close(); });
      document.body.append(keys);
    }
    keys.showModal();
  };

  let led = 0; // until when g waits for a second key
  document.addEventListener('keydown', (e) => {
    if (e.target.closest?.('.term')) return; // its program gets every key
    if ((e.metaKey || e.ctrlKey) && !e.shiftKey && !e.altKey && e.key.toLowerCase() === 'k') { e.preventDefault(); open(); return; }
    if (e.metaKey || e.ctrlKey || e.altKey || e.target.closest?.('input, textarea, select, [contenteditable]') || document.querySelector('dialog[open], dialog:popover-open')) return;
    if (led > Date.now()) {
      led = 0;
      const a = document.querySelector('[data-go="' + CSS.escape(e.key) + '"]');
      if (a) { e.preventDefault(); a.click(); }
      return;
    }
    if (e.key === 'g') led = Date.now() + 1200;
    else if (e.key === '?') { e.preventDefault(); help(); }
    else if (e.key === '/' && !document.querySelector('[data-key="/"]')) { e.preventDefault(); open(); }
  });
})();
