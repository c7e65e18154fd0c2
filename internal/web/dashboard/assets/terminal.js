// The terminal of a site: xterm.js over a WebSocket. xterm.js, xterm-fit.js and xterm.css are
// @xterm/xterm 6.0.0 and @xterm/addon-fit 0.11.0 from npm without the line of their source maps;
// the license is in xterm-license.txt.
'use strict';
(() => {
  const box = document.querySelector('[data-terminal]');
  if (!box) return;
  const view = box.querySelector('[data-terminal-view]');
  const start = box.querySelector('[data-terminal-start]');
  const state = box.querySelector('[data-terminal-state]');

  // The Content Security Policy allows neither <style> elements nor style attributes. xterm.js makes
  // both, so on this page what it makes fills an adopted sheet, and sets styles through CSSOM.
  const make = document.createElement.bind(document);
  const sheeted = () => {
    const el = make('div'), sheet = new CSSStyleSheet();
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    el.hidden = true;
    Object.defineProperty(el, 'textContent', { set: (text) => sheet.replaceSync(text) });
    Object.defineProperty(el, 'sheet', { value: sheet });
    return el;
  };
  const setAttribute = function (name, value) {
    if (name === 'style') this.style.cssText = value; else Element.prototype.setAttribute.call(this, name, value);
  };
  document.createElement = (name, options) => {
    if (name === 'style') return sheeted();
    const el = make(name, options);
    if (name === 'span') el.setAttribute = setAttribute;
    return el;
  };

  // The colors are the page's.
  const theme = () => {
    const probe = document.createElement('span');
    view.append(probe);
    const color = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
    const out = { background: color('sunk'), foreground: color('ink'), cursor: color('ink'), cursorAccent: color('sunk'), selectionBackground: color('select') };
    ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'].forEach((name, i) => {
      out[name] = color('c' + i);
      out['bright' + name[0].toUpperCase() + name.slice(1)] = out[name];
    });
    probe.remove();
    return out;
  };

  const style = getComputedStyle(view);
  const term = new Terminal({
    cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches,
    fontFamily: style.fontFamily,
    fontSize: parseFloat(style.fontSize),
    lineHeight: 1.15,
    minimumContrastRatio: 4.5,
    scrollback: 5000,
    theme: theme(),
  });
  const fit = new FitAddon.FitAddon();
  term.loadAddon(fit);
  term.open(view);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { term.options.theme = theme(); });
  // Tab belongs to the shell; Shift+Tab leaves the terminal.
  term.attachCustomKeyEventHandler((e) => !(e.key === 'Tab' && e.shiftKey));

  // The server allows 20 to 500 columns and 5 to 200 rows.
  const resize = () => {
    const size = fit.proposeDimensions();
    if (size) term.resize(Math.max(20, Math.min(500, size.cols || 80)), Math.max(5, Math.min(200, size.rows || 24)));
  };
  let fitting;
  new ResizeObserver(() => { clearTimeout(fitting); fitting = setTimeout(resize, 150); }).observe(view);
  resize();

  let socket = null;
  const send = (bytes) => {
    if (!socket || socket.readyState !== WebSocket.OPEN) return;
    for (let i = 0; i < bytes.length; i += 16384) socket.send(bytes.subarray(i, i + 16384));
  };
  const encoder = new TextEncoder();
  term.onData((text) => send(encoder.encode(text)));
  term.onBinary((text) => send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  term.onResize(({ cols, rows }) => {
    if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ columns: cols, rows }));
  });

  const show = (text, on) => {
    state.textContent = text;
    start.hidden = on;
    view.classList.toggle('on', on);
    term.options.disableStdin = !on;
  };
  const connect = () => {
    term.reset();
    resize();
    const to = new URL(box.dataset.terminal, location.href);
    to.protocol = to.protocol === 'https:' ? 'wss:' : 'ws:';
    to.search = new URLSearchParams({ columns: term.cols, rows: term.rows });
    const mine = new WebSocket(to);
    socket = mine;
    mine.binaryType = 'arraybuffer';
    show('Connecting…', true);
    mine.onopen = () => { show('Connected', true); term.focus(); };
    mine.onmessage = (e) => { if (typeof e.data !== 'string') term.write(new Uint8Array(e.data)); };
    mine.onclose = (e) => {
      if (socket === mine) socket = null;
      show(e.reason || 'The connection was lost', false);
    };
  };
  term.options.disableStdin = true;
  if (start) {
    start.hidden = false;
    start.addEventListener('click', connect);
  }
  window.addEventListener('pagehide', () => { if (socket) socket.close(); });
})();
