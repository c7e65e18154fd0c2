// Comfort for pages that work without it: copying, fresh times, live parts, shortcuts.
'use strict';
(() => {
  const root = document.documentElement;
  root.classList.add('js');

  const say = (text) => {
    const el = document.getElementById('say');
    if (el) { el.textContent = ''; requestAnimationFrame(() => { el.textContent = text; }); }
  };

  // Toasts go by themselves unless somebody is reading them, and at once when they are dismissed.
  const toast = document.querySelector('.flash');
  if (toast) {
    const close = document.createElement('button');
    close.type = 'button'; close.textContent = '✕'; close.setAttribute('aria-label', 'Dismiss');
    close.addEventListener('click', () => toast.remove());
    toast.append(close);
    const leave = () => { if (toast.matches(':hover, :focus-within')) setTimeout(leave, 2000); else toast.remove(); };
    setTimeout(leave, 12000);
  }

  // Copy: the text stands in data-copy; data-copy-from names an element that holds it.
  document.addEventListener('click', async (e) => {
    const b = e.target.closest('[data-copy], [data-copy-from]');
    if (!b) return;
    const from = b.dataset.copyFrom && document.querySelector(b.dataset.copyFrom);
    const text = from ? from.innerText : b.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch { // no permission, or no https: the old way
      const t = document.createElement('textarea');
      t.value = text; t.className = 'sr'; document.body.append(t); t.select();
      document.execCommand('copy'); t.remove(); b.focus();
    }
    const word = b.querySelector('.copy-word');
    b.classList.add('done'); if (word) word.textContent = 'Copied';
    say('Copied');
    setTimeout(() => { b.classList.remove('done'); if (word) word.textContent = 'Copy'; }, 1600);
  });

  // Times: "3 minutes ago" stays true, and the exact one is the reader's own.
  const units = [['year', 31536e6], ['month', 2592e6], ['day', 864e5], ['hour', 36e5], ['minute', 6e4], ['second', 1e3]];
  const relative = (ms) => {
    const abs = Math.abs(ms);
    if (abs < 5000) return 'just now';
    const [unit, size] = units.find(([, s]) => abs >= s);
    const n = Math.floor(abs / size);
    const text = n + ' ' + unit + (n === 1 ? '' : 's');
    return ms > 0 ? text + ' ago' : 'in ' + text;
  };
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'long', timeStyle: 'medium' });
  const freshen = (scope) => {
    for (const t of scope.querySelectorAll('time[datetime]')) {
      const at = Date.parse(t.dateTime);
      if (Number.isNaN(at)) continue;
      t.title = exact.format(at) + ' (' + t.dateTime + ')';
      if ('ago' in t.dataset) { const w = relative(Date.now() - at); if (t.textContent !== w) t.textContent = w; }
    }
  };
  freshen(document);
  setInterval(() => freshen(document), 15000);

  // Live parts: the server sends the part again whenever it looks different. What is the
  // same stays the very same node, so the focus, a selection, an open dialog, opened details
  // and a click in the middle survive. Nodes with an id or a data-test are told by it.
  const nameOf = (n) => n.nodeType === 1 ? n.id || n.dataset.test || '' : '';
  const same = (old, now) => old && old.nodeType === now.nodeType && old.nodeName === now.nodeName && nameOf(old) === nameOf(now);
  const update = (old, now) => {
    if (old.isEqualNode(now)) return;
    if (old.nodeType !== 1) { old.data = now.data; return; }
    for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && !(name === 'open' && old.nodeName === 'DETAILS')) old.removeAttribute(name);
    for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    fill(old, now);
  };
  const fill = (into, from) => {
    let at = into.firstChild;
    for (const now of [...from.childNodes]) {
      let old = at;
      if (!same(old, now) && nameOf(now)) for (old = at; old && !same(old, now);) old = old.nextSibling;
      if (!same(old, now)) { into.insertBefore(now, at); continue; }
      if (old === at) at = at.nextSibling;
      else if (into.moveBefore) into.moveBefore(old, at); // keeps the focus
      else into.insertBefore(old, at);
      update(old, now);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };
  // When a live part has ended, what the rest of the page says is out of date: its title, and the
  // elements that are marked data-fresh with a name.
  const refresh = async () => {
    const r = await fetch(location.href, { redirect: 'error' }).catch(() => null);
    if (!r || !r.ok) return;
    const page = new DOMParser().parseFromString(await r.text(), 'text/html');
    document.title = page.title;
    for (const old of document.querySelectorAll('[data-fresh]')) {
      const now = page.querySelector('[data-fresh="' + CSS.escape(old.dataset.fresh) + '"]');
      if (now) { update(old, document.importNode(now, true)); freshen(old); }
    }
  };
  // The tab shows how a deployment goes, also while another one is looked at.
  const icon = document.querySelector('link[rel="icon"]');
  const tab = (el) => {
    const now = el.querySelector('[data-tab]');
    if (!now || !icon) return;
    if (now.dataset.title) document.title = now.dataset.title + ' · Slipway';
    const href = icon.dataset[now.dataset.tab || 'plain'];
    if (href && icon.getAttribute('href') !== href) icon.setAttribute('href', href);
  };
  // A page that is being left isn't loaded anew: that would cancel the way to the next one.
  let leaving = 0;
  window.addEventListener('beforeunload', () => { leaving = Date.now(); });
  // A stream comes back: browsers give up on one whose answer isn't 200, as when too many pages are live or the server
  // restarts. It goes on after the last event that came. Where it is no longer for this reader, the page says so.
  const away = new Set();
  let paused = null;
  const tellAway = () => {
    if (!away.size) { if (paused) { paused.remove(); paused = null; say('Live updates resumed'); } return; }
    if (!paused) {
      paused = document.createElement('p');
      paused.className = 'paused'; paused.dataset.test = 'paused'; paused.setAttribute('role', 'status');
      document.body.append(paused);
    }
    const text = [...away].some((s) => s.gone) ? 'Live updates have ended. Reload the page.' : 'Live updates paused. Reconnecting…';
    if (paused.textContent !== text) paused.textContent = text;
  };
  const stream = (url, on) => {
    const s = { gone: false };
    let source, last = '', wait = 1000, timer = 0, closed = false;
    const address = () => last ? url + (url.includes('?') ? '&' : '?') + 'last=' + encodeURIComponent(last) : url;
    const back = () => { clearTimeout(timer); timer = 0; if (away.delete(s)) tellAway(); };
    const miss = () => { away.add(s); tellAway(); };
    const later = () => { wait = Math.min(60000, wait * 2); timer = setTimeout(again, wait * (0.75 + Math.random() / 2)); };
    const again = async () => {
      const asks = new AbortController();
      const r = await fetch(address(), { signal: asks.signal, redirect: 'manual', headers: { Accept: 'text/event-stream' } }).catch(() => null);
      asks.abort(); // it was asked for its status alone, which an EventSource doesn't tell
      if (closed) return;
      if (r && r.ok) { open(); return; }
      if (r && (r.type === 'opaqueredirect' || [401, 403, 404, 410].includes(r.status))) { s.gone = true; tellAway(); return; }
      later();
    };
    const open = () => {
      source = new EventSource(address());
      source.addEventListener('open', () => { wait = 1000; back(); });
      source.addEventListener('error', () => {
        if (closed) return;
        clearTimeout(timer);
        if (source.readyState === EventSource.CLOSED) { miss(); later(); } else timer = setTimeout(miss, 5000); // the browser tries by itself
      });
      for (const [name, f] of Object.entries(on)) source.addEventListener(name, (e) => { if (e.lastEventId) last = e.lastEventId; f(e); });
    };
    s.close = () => { closed = true; source.close(); back(); };
    window.addEventListener('pagehide', s.close);
    open();
    return s;
  };
  window.slipwayStream = stream; // for the logs of site.js
  const follow = (el) => {
    const source = el.source = stream(el.dataset.live, { html: (e) => {
      const active = el.contains(document.activeElement) && document.activeElement;
      const t = document.createElement('template');
      t.innerHTML = e.data; // our own template's output, escaped on the server
      const headOf = (n) => n.querySelector('[data-head]')?.dataset.head, was = headOf(el);
      fill(el, t.content);
      freshen(el);
      tab(el);
      if (active && document.activeElement !== active) { // what had the focus is gone: its part gets it
        const again = active.isConnected ? active : el;
        if (again === el && !el.hasAttribute('tabindex')) el.tabIndex = -1;
        again.focus({ preventScroll: true });
      }
      if (el.dataset.liveSay) say(el.dataset.liveSay);
      if (was !== headOf(el)) refresh(); // what stands around the part follows it
    }, end: () => {
      source.close();
      if (el.dataset.liveEnd !== 'reload') refresh();
      else if (Date.now() - leaving > 10000) location.reload();
    } });
  };
  for (const el of document.querySelectorAll('[data-live]')) follow(el);

  // Search as you type: the page for what is typed is fetched, and its results take the place
  // of those that are shown. Only the newest answer counts.
  for (const b of document.querySelectorAll('[data-needless]')) b.hidden = true;
  // A favorite is noted where it is clicked; the list sorts itself with its next live part.
  document.addEventListener('submit', async (e) => {
    const f = e.target.closest('[data-favorite]');
    if (!f) return;
    e.preventDefault();
    const b = f.querySelector('button'), on = f.elements.on;
    const r = await fetch(f.action, { method: 'POST', body: new URLSearchParams(new FormData(f)), redirect: 'manual' }).catch(() => null);
    if (!r || r.type !== 'opaqueredirect') { f.submit(); return; } // its page says what is wrong
    b.setAttribute('aria-pressed', String(on.value === '1'));
    on.value = on.value === '1' ? '0' : '1';
  });
  for (const f of document.querySelectorAll('[data-submit-at-once]')) f.requestSubmit();
  for (const s of document.querySelectorAll('[data-submit-on-change]')) s.addEventListener('change', () => s.form.requestSubmit());
  for (const input of document.querySelectorAll('[data-search-as-typed]')) {
    let typing, asked;
    input.addEventListener('input', () => {
      clearTimeout(typing);
      typing = setTimeout(async () => {
        if (asked) asked.abort();
        asked = new AbortController();
        const query = new URLSearchParams(new FormData(input.form));
        for (const [k, v] of [...query]) if (!v) query.delete(k);
        const url = input.form.action.split('?')[0] + (query.size ? '?' + query : '');
        try {
          const r = await fetch(url, { signal: asked.signal, redirect: 'error' });
          if (!r.ok) return;
          const page = new DOMParser().parseFromString(await r.text(), 'text/html');
          const now = page.querySelector('[data-results="sites"]'), old = document.querySelector('[data-results="sites"]');
          if (!now || !old) return;
          for (const el of old.querySelectorAll('[data-live]')) if (el.source) el.source.close();
          old.replaceChildren(...now.childNodes);
          const chips = page.querySelector('[data-results="bar"] .chips'), was = document.querySelector('[data-results="bar"] .chips');
          if (chips && was) was.replaceChildren(...chips.childNodes);
          freshen(old);
          for (const el of old.querySelectorAll('[data-live]')) follow(el);
          history.replaceState(null, '', url);
        } catch (e) { if (e.name !== 'AbortError') input.form.requestSubmit(); }
      }, 250);
    });
  }

  // A page from the back-forward cache has closed its sources: load it anew.
  window.addEventListener('pageshow', (e) => { if (e.persisted) location.reload(); });

  // Menus close when the focus or a click leaves them, and by Escape.
  const closeMenus = (except) => { for (const m of document.querySelectorAll('details[data-menu][open]')) if (m !== except) m.open = false; };
  document.addEventListener('click', (e) => closeMenus(e.target.closest('details[data-menu]')));
  document.addEventListener('focusin', (e) => closeMenus(e.target.closest('details[data-menu]')));
  document.addEventListener('keydown', (e) => {
    if (e.key === 'Escape') {
      const m = document.querySelector('details[data-menu][open]');
      if (m) { m.open = false; m.querySelector('summary').focus(); }
      return;
    }
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
    const el = document.querySelector('[data-key="' + CSS.escape(e.key) + '"]');
    if (el) { e.preventDefault(); el.focus(); if (el.select) el.select(); }
  });

  // A dialog that asks something keeps the focus until it is answered.
  document.addEventListener('keydown', (e) => {
    const dialog = e.key === 'Tab' && document.querySelector('dialog:popover-open');
    if (!dialog) return;
    const stops = [...dialog.querySelectorAll('a[href], button, input, select, textarea')].filter((s) => s.type !== 'hidden' && s.checkVisibility());
    const edge = e.shiftKey ? stops[0] : stops.at(-1);
    if (document.activeElement !== edge && dialog.contains(document.activeElement)) return;
    e.preventDefault();
    (e.shiftKey ? stops.at(-1) : stops[0]).focus();
  });

  // Colors change at once; the server remembers them.
  for (const f of document.querySelectorAll('[data-theme-form]')) {
    f.addEventListener('submit', (e) => {
      const theme = e.submitter && e.submitter.value;
      if (!theme) return;
      e.preventDefault();
      root.dataset.theme = theme;
      for (const b of document.querySelectorAll('[data-theme-form] button')) b.setAttribute('aria-pressed', String(b.value === theme));
      fetch(f.action, { method: 'POST', body: new URLSearchParams({ theme, back: '/' }), redirect: 'manual', keepalive: true });
    });
  }

  // Presets tick the scopes of a new key.
  for (const box of document.querySelectorAll('[data-presets]')) {
    box.hidden = false;
    const form = box.closest('form');
    box.addEventListener('click', (e) => {
      const b = e.target.closest('[data-preset]');
      if (!b) return;
      const want = b.dataset.preset.split(' ');
      for (const c of form.querySelectorAll('input[name="scopes"]')) c.checked = want.includes(c.value);
      form.querySelector('input[name="power"][value="some"]').checked = true;
      say(b.textContent + ': ' + want.length + ' scopes selected');
    });
  }

  // A form is sent once.
  document.addEventListener('submit', (e) => {
    const f = e.target;
    if (f.method !== 'post' || 'themeForm' in f.dataset || 'passkey' in f.dataset || e.defaultPrevented) return;
    if (f.dataset.sent) { e.preventDefault(); return; }
    f.dataset.sent = '1';
    const b = e.submitter;
    if (b) setTimeout(() => { b.setAttribute('aria-disabled', 'true'); }, 0);
    setTimeout(() => { delete f.dataset.sent; if (b) b.removeAttribute('aria-disabled'); }, 8000);
  });

  // In a row of links that is wider than the screen the current one is in sight.
  const bringIn = () => {
    for (const a of document.querySelectorAll('.nav [aria-current], .side [aria-current], .tabs [aria-current], .chips [aria-current]')) {
      const row = a.parentElement;
      if (row.scrollWidth > row.clientWidth) row.scrollLeft += a.getBoundingClientRect().left - row.getBoundingClientRect().left - (row.clientWidth - a.offsetWidth) / 2;
    }
  };
  bringIn();
  addEventListener('resize', bringIn);

  // The field that is wrong is where the reader wants to be.
  const wrong = document.querySelector('[aria-invalid="true"]');
  if (wrong) wrong.focus();
})();
