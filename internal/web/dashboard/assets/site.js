// The logs of deployments and of applications, live: they follow, are searched, wrapped and jumped through.
'use strict';
(() => {
  const say = (text) => { const el = document.getElementById('say'); if (el) el.textContent = text; };

  // A text area that holds one line grows with what is put into it.
  for (const area of document.querySelectorAll('textarea[rows="1"]')) {
    area.addEventListener('input', () => { area.rows = Math.min(12, Math.max(1, area.value.split('\n').length)); });
  }

  // Another branch may hold another project.
  const branch = document.querySelector('select[name="branch"]');
  const look = document.querySelector('button[value="look"]');
  if (branch && look && document.querySelector('[data-test="plan"], [data-test="plan-why"]')) branch.addEventListener('change', () => look.click());

  // The gauges of a site share a crosshair: by pointer or with the arrow keys, with the reader's own time and
  // the deployment that was made then. The overview is sent again as it changes: elements are looked up anew.
  const moment = new Intl.DateTimeFormat(undefined, { weekday: 'short', hour: '2-digit', minute: '2-digit' });
  let crossed = null; // the point that is shown
  const cross = (gauges, at) => {
    crossed = at;
    const marks = new Map(gauges.dataset.marks.split('|').filter(Boolean).map((m) => [Number(m.slice(0, m.indexOf(':'))), m.slice(m.indexOf(':') + 1)]));
    for (const plot of gauges.querySelectorAll('.gauge-plot')) {
      const words = plot.dataset.words.split('|'), note = plot.parentElement.querySelector('.gauge-note');
      let line = plot.querySelector('.gauge-cross');
      if (at === null) {
        if (line) line.remove();
        if (note.dataset.was !== undefined) { note.textContent = note.dataset.was; delete note.dataset.was; }
        continue;
      }
      const n = crossed = Math.max(0, Math.min(words.length - 1, at));
      if (!line) { line = document.createElement('span'); line.className = 'gauge-cross'; plot.append(line); }
      line.style.left = 100 * n / (words.length - 1) + '%';
      if (note.dataset.was === undefined) note.dataset.was = note.textContent;
      note.textContent = moment.format(Number(gauges.dataset.from) + n * Number(gauges.dataset.step)) + ' · ' + words[n] + (marks.has(n) ? ' · ' + marks.get(n) : '');
      plot.setAttribute('aria-valuenow', n);
      plot.setAttribute('aria-valuetext', note.textContent);
    }
  };
  const gaugeOf = (e) => e.target.closest ? e.target.closest('.gauge-plot') : null;
  document.addEventListener('pointermove', (e) => {
    const plot = gaugeOf(e), shown = document.querySelector('.gauge-cross');
    if (!plot) { if (shown && !document.activeElement.closest('.gauge-plot')) cross(shown.closest('[data-gauges]'), null); return; }
    const box = plot.getBoundingClientRect();
    cross(plot.closest('[data-gauges]'), Math.round((e.clientX - box.left) / box.width * (plot.dataset.words.split('|').length - 1)));
  });
  const slide = () => {
    for (const plot of document.querySelectorAll('.gauge-plot[role="img"]')) {
      const last = plot.dataset.words.split('|').length - 1;
      for (const [k, v] of [['role', 'slider'], ['aria-valuemin', 0], ['aria-valuemax', last], ['aria-valuenow', last]]) plot.setAttribute(k, v);
    }
  };
  slide();
  document.addEventListener('focusin', (e) => { const plot = gaugeOf(e); if (plot) cross(plot.closest('[data-gauges]'), crossed ?? Infinity); });
  document.addEventListener('focusout', (e) => { const plot = gaugeOf(e); if (plot) cross(plot.closest('[data-gauges]'), null); });
  document.addEventListener('keydown', (e) => {
    const plot = gaugeOf(e), step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -4, PageUp: 4, Home: -Infinity, End: Infinity }[e.key];
    if (!plot || !step) return;
    e.preventDefault();
    cross(plot.closest('[data-gauges]'), (crossed ?? 0) + step);
  });
  const overview = document.querySelector('[data-gauges]');
  if (overview) new MutationObserver(() => {
    slide();
    const plot = document.activeElement.closest('.gauge-plot'); // what was sent anew has no crosshair
    if (plot && crossed !== null && !plot.querySelector('.gauge-cross')) cross(plot.closest('[data-gauges]'), crossed);
  }).observe(overview.parentElement, { subtree: true, childList: true, attributeFilter: ['role'] });

  const log = document.querySelector('[data-log]');
  if (!log) return;
  const panel = log.closest('.log-panel');
  const find = panel.querySelector('[data-log-search]');
  const input = find ? find.querySelector('input') : null; // an application's log is searched on the server
  const count = find ? find.querySelector('output') : null;
  const list = log.querySelector('[data-lines]') || log;
  const errorButton = panel.querySelector('[data-log-error]');
  const wrapButton = panel.querySelector('[data-log-wrap]');
  const followButton = panel.querySelector('[data-log-follow]');
  const none = panel.querySelector('.log-none');
  if (find) find.hidden = false;
  wrapButton.hidden = false;
  for (const el of panel.querySelectorAll('.log-plain, .log-more')) el.hidden = true;

  const store = { // a browser may keep nothing
    get: (k) => { try { return localStorage.getItem(k); } catch { return null; } },
    set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* then not */ } },
  };
  const press = (b, on) => b.setAttribute('aria-pressed', String(on));

  // Wrapping is remembered.
  const wrap = (on) => { log.classList.toggle('nowrap', !on); press(wrapButton, on); };
  wrap(store.get('log-wrap') !== 'off');
  wrapButton.addEventListener('click', () => {
    const on = log.classList.contains('nowrap');
    wrap(on);
    store.set('log-wrap', on ? 'on' : 'off');
  });

  // Following: the end stays in sight until the reader scrolls away from it.
  let follow = !location.hash;
  const end = () => { log.scrollTop = log.scrollHeight; };
  const setFollow = (on) => { follow = on; press(followButton, on); };
  setFollow(follow);
  followButton.addEventListener('click', () => { setFollow(!follow); if (follow) end(); });
  log.addEventListener('wheel', (e) => { if (e.deltaY < 0) setFollow(false); }, { passive: true });
  log.addEventListener('touchmove', () => setFollow(false), { passive: true });
  log.addEventListener('scroll', () => { // the reader is at the end again; a log that is its own reverse counts from there
    const left = getComputedStyle(log).flexDirection === 'column-reverse' ? -log.scrollTop : log.scrollHeight - log.clientHeight - log.scrollTop;
    if (left < 2 && !follow && !log.querySelector('.at')) setFollow(true);
  }, { passive: true });
  log.addEventListener('keydown', (e) => { if (/^(ArrowUp|PageUp|Home)$/.test(e.key)) setFollow(false); });

  const center = (el) => {
    setFollow(false);
    const was = log.querySelector('.at');
    if (was) was.classList.remove('at');
    el.classList.add('at');
    const to = log.getBoundingClientRect(), box = el.getBoundingClientRect();
    log.scrollTop += box.top - to.top - (to.height - box.height) / 2;
  };

  const firstError = () => log.querySelector('.ln.error');
  const showError = () => { errorButton.hidden = !firstError(); };
  errorButton.addEventListener('click', () => {
    const el = firstError();
    if (el) { center(el); say('Line ' + el.id.slice(1) + ': ' + el.lastElementChild.textContent); }
  });

  // Search: lines that hold the words are marked, Enter goes through them.
  let hits = [], at = -1;
  const marks = window.Highlight && CSS.highlights ? new Highlight() : null;
  if (marks) CSS.highlights.set('log-hit', marks);
  const mark = (line, want) => {
    if (!marks) return;
    const walker = document.createTreeWalker(line.lastElementChild, NodeFilter.SHOW_TEXT);
    for (let n = walker.nextNode(); n; n = walker.nextNode()) {
      const text = n.data.toLowerCase();
      for (let i = text.indexOf(want); i >= 0 && text.length === n.data.length; i = text.indexOf(want, i + want.length)) {
        const r = new Range();
        r.setStart(n, i); r.setEnd(n, i + want.length);
        marks.add(r);
      }
    }
  };
  const tell = () => { if (input) count.textContent = !input.value.trim() ? '' : hits.length ? (at < 0 ? '' : (at + 1) + ' of ') + hits.length : 'none'; };
  const look4 = (lines) => {
    const want = input ? input.value.trim().toLowerCase() : '';
    if (!want) return;
    for (const line of lines) {
      if (!line.lastElementChild.textContent.toLowerCase().includes(want)) continue;
      line.classList.add('hit');
      hits.push(line);
      mark(line, want);
    }
  };
  const search = () => {
    for (const el of hits) el.classList.remove('hit');
    hits = []; at = -1;
    if (marks) marks.clear();
    look4(log.querySelectorAll('.ln'));
    tell();
  };
  const go = (step) => {
    if (!hits.length) return;
    at = (at + step + hits.length) % hits.length;
    center(hits[at]);
    tell();
  };
  let typing;
  if (find) input.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(() => { search(); go(1); }, 120); });
  if (find) find.addEventListener('submit', (e) => { e.preventDefault(); go(1); });
  if (find) input.addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && e.shiftKey) { e.preventDefault(); go(-1); }
    if (e.key === 'Escape' && input.value) { e.preventDefault(); input.value = ''; search(); }
  });

  // When a line was printed, in the reader's own time; the exact moment is on hover.
  const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
  const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'long', timeStyle: 'medium' });
  const localize = (scope) => {
    for (const t of scope.querySelectorAll('time[data-clock]')) {
      const at = new Date(t.dateTime);
      t.firstElementChild.textContent = day.format(at);
      t.lastChild.data = ' ' + clock.format(at);
      t.title = exact.format(at) + ' (' + t.dateTime + ')';
    }
  };
  localize(log);

  showError();
  if (follow) end();
  const named = location.hash && document.getElementById(location.hash.slice(1));
  if (named && log.contains(named)) center(named);

  // The rest of the log, as it comes. The browser keeps the newest lines.
  const kept = 5000;
  if (!log.dataset.log) return;
  followButton.hidden = false;
  const lines = (e) => {
    const t = document.createElement('template');
    t.innerHTML = e.data; // our own rendering: every text in it was escaped on the server
    const chunk = document.createElement('div');
    chunk.className = 'log-chunk';
    chunk.append(t.content);
    const added = [...chunk.children];
    localize(chunk);
    list.append(chunk);
    if (list !== log) while (list.children.length > 1 && list.querySelectorAll('.ln').length > kept) list.firstElementChild.remove();
    log.hidden = false;
    if (none) none.hidden = true;
    look4(added);
    tell();
    showError();
    if (follow) end();
  };
  // A notification tells the end of a deployment to whoever asked for it and looks at something else then.
  const bell = panel.querySelector('[data-notify]');
  const notifies = () => bell && window.isSecureContext && 'Notification' in window && Notification.permission === 'granted' && store.get('notify') === 'on';
  if (bell && window.isSecureContext && 'Notification' in window) {
    bell.hidden = Notification.permission === 'denied';
    press(bell, notifies());
    bell.addEventListener('click', async () => {
      if (notifies()) store.set('notify', 'off');
      else if (await Notification.requestPermission() === 'granted') store.set('notify', 'on');
      else { bell.hidden = true; say('The browser blocks notifications of this page'); return; }
      press(bell, notifies());
      say(notifies() ? 'You are notified when this deployment ends and another tab is open' : 'Notifications are off');
    });
  }
  const ended = (e) => {
    source.close();
    if (notifies() && document.hidden) {
      const name = document.querySelector('h1');
      const told = new Notification(e.data === 'success' ? 'Deployment ready' : 'Deployment ' + e.data, { body: name ? name.textContent : '', tag: location.pathname });
      told.addEventListener('click', () => { window.focus(); told.close(); });
    }
    if (bell) bell.hidden = true;
    followButton.hidden = true;
    say(e.data === 'success' ? 'The deployment is ready' : 'The deployment has ended: ' + e.data);
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && log.contains(target)) center(target);
    else if (e.data === 'failed' && follow) { const el = firstError(); if (el) center(el); }
  };
  const source = window.slipwayStream(log.dataset.log + (log.dataset.log.includes('?') ? '&' : '?') + 'after=' + encodeURIComponent(log.dataset.after), { lines, end: ended });
})();
