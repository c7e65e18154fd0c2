// The terminal of a site: what is typed goes out over a WebSocket, what comes back is drawn
// as an xterm draws it, as far as shells, REPLs, pagers and editors need. Every text becomes a
// text node; sequences that are not known are dropped.
'use strict';
(() => {
  const box = document.querySelector('[data-terminal]');
  if (!box) return;
  const view = box.querySelector('[data-terminal-view]');
  const back = view.querySelector('.term-back');
  const rowsBox = view.querySelector('.term-screen');
  const input = view.querySelector('textarea');
  const start = box.querySelector('[data-terminal-start]');
  const state = box.querySelector('[data-terminal-state]');
  const maxBack = 1000, maxParams = 16, maxText = 4096;

  const plain = { fg: -1, bg: -1, bold: false, dim: false, italic: false, under: false, inverse: false };
  const blank = { ch: ' ', st: plain, wide: false };
  // Characters that take two columns: East Asian wide ones and pictures.
  const wide = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
  const joins = /[\p{M}\u200d\ufe0f]/u;

  class Screen {
    constructor(cols, rows, reply) {
      this.reply = reply;
      this.cols = cols; this.rows = rows;
      this.reset();
    }

    reset() {
      this.st = plain;
      this.x = this.y = 0;
      this.top = 0; this.bottom = this.rows - 1;
      this.main = null; // the lines below the alternate screen
      this.saved = { x: 0, y: 0, st: plain };
      this.wrap = true; this.pending = false; this.insert = false; this.graphics = false;
      this.cursor = true; this.appKeys = false; this.bracket = false;
      this.state = this.ground;
      this.lines = Array.from({ length: this.rows }, () => this.line());
      this.gone = []; // lines that have left at the top, to be drawn
      this.dirty = new Set(this.lines.keys());
    }

    line() { return Array(this.cols).fill(this.st.bg < 0 ? blank : { ch: ' ', st: { ...plain, bg: this.st.bg }, wide: false }); }

    touch(from, to = from) { for (let i = from; i <= to; i++) this.dirty.add(i); }

    resize(cols, rows) {
      if (cols === this.cols && rows === this.rows) return;
      const fit = (lines) => {
        for (const l of lines) {
          if (l.length > cols) l.length = cols;
          while (l.length < cols) l.push(blank);
        }
        return lines;
      };
      this.cols = cols;
      for (const lines of [this.lines, this.main ? this.main.lines : []]) {
        fit(lines);
        while (lines.length && lines.length < rows) lines.push(Array(cols).fill(blank));
        while (lines.length > rows) {
          if (lines === this.lines && this.y < lines.length - 1) lines.pop();
          else {
            const l = lines.shift();
            if (lines === this.lines) { if (!this.main) this.gone.push(l); this.y--; }
          }
        }
      }
      this.rows = rows;
      this.top = 0; this.bottom = rows - 1;
      this.x = Math.min(this.x, cols - 1); this.y = Math.max(0, Math.min(this.y, rows - 1));
      this.pending = false;
      this.touch(0, rows - 1);
    }

    write(text) { for (const ch of text) this.state(ch); }

    ground(ch) {
      const c = ch.codePointAt(0);
      if (c >= 0x20 && c !== 0x7f) { if (c < 0x80 || c > 0x9f) this.put(ch); return; }
      this.control(c);
    }

    control(c) {
      switch (c) {
        case 0x08: this.pending = false; if (this.x > 0) this.x--; break;
        case 0x09: this.pending = false; this.x = Math.min(this.cols - 1, (this.x | 7) + 1); break;
        case 0x0a: case 0x0b: case 0x0c: this.down(); break;
        case 0x0d: this.pending = false; this.x = 0; break;
        case 0x0e: this.graphics = true; break;
        case 0x0f: this.graphics = false; break;
        case 0x1b: this.state = this.escape; break;
        default:
      }
      this.touch(this.y);
    }

    put(ch) {
      const line = this.lines[this.y];
      if (joins.test(ch)) {
        const at = this.pending ? this.x : this.x - 1;
        if (at >= 0 && line[at].ch.length < 16) line[at] = { ...line[at], ch: line[at].ch + ch };
        this.touch(this.y);
        return;
      }
      if (this.graphics && ch >= '`' && ch <= '~') ch = '◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·'[ch.charCodeAt(0) - 96];
      const width = wide.test(ch) && this.cols > 1 ? 2 : 1;
      if (this.pending || this.x + width > this.cols) {
        if (this.wrap) { this.x = 0; this.down(); } else this.x = this.cols - width;
        this.pending = false;
      }
      const row = this.lines[this.y];
      if (this.insert) { row.splice(this.x, 0, ...Array(width).fill(blank)); row.length = this.cols; }
      row[this.x] = { ch, st: this.st, wide: width === 2 };
      if (width === 2) row[this.x + 1] = { ch: '', st: this.st, wide: false };
      this.touch(this.y);
      this.x += width;
      if (this.x >= this.cols) { this.x = this.cols - 1; this.pending = true; }
    }

    down() {
      this.pending = false;
      this.touch(this.y);
      if (this.y === this.bottom) this.scroll(1);
      else if (this.y < this.rows - 1) this.y++;
    }

    up() {
      this.pending = false;
      this.touch(this.y);
      if (this.y === this.top) this.scroll(-1);
      else if (this.y > 0) this.y--;
    }

    scroll(n, top = this.top) {
      for (let i = 0; i < Math.min(Math.abs(n), this.bottom - top + 1); i++) {
        if (n > 0) {
          const [l] = this.lines.splice(top, 1);
          this.lines.splice(this.bottom, 0, this.line());
          if (top === 0 && !this.main) this.gone.push(l);
        } else {
          this.lines.splice(this.bottom, 1);
          this.lines.splice(top, 0, this.line());
        }
      }
      if (this.gone.length > maxBack) this.gone.splice(0, this.gone.length - maxBack);
      this.touch(top, this.bottom);
    }

    escape(ch) {
      this.state = this.ground;
      switch (ch) {
        case '[': this.params = ''; this.state = this.csi; break;
        case ']': case 'P': case 'X': case '^': case '_': this.skipped = 0; this.state = this.string; break;
        case '(': case ')': case '*': case '+': case '#': case '%': case ' ': this.charset = ch; this.state = this.designate; break;
        case '7': this.saved = { x: this.x, y: this.y, st: this.st }; break;
        case '8': this.restore(); break;
        case 'D': this.down(); break;
        case 'M': this.up(); break;
        case 'E': this.x = 0; this.down(); break;
        case 'c': this.reset(); break;
        default: if (ch < ' ') this.control(ch.charCodeAt(0));
      }
    }

    designate(ch) {
      if (this.charset === '(') this.graphics = ch === '0';
      this.state = this.ground;
    }

    // What a title, a link or a device string says is for nobody here.
    string(ch) {
      if (ch === '\x07' || ch === '\x9c' || this.skipped++ > maxText || ch === '\x18') this.state = this.ground;
      else if (ch === '\x1b') this.state = this.stringEnd;
    }

    stringEnd(ch) {
      if (ch === '\\') this.state = this.ground;
      else { this.state = this.escape; this.state(ch); }
    }

    restore() {
      this.touch(this.y);
      ({ x: this.x, y: this.y, st: this.st } = this.saved);
      this.x = Math.min(this.x, this.cols - 1); this.y = Math.min(this.y, this.rows - 1);
      this.pending = false;
    }

    csi(ch) {
      if (ch < ' ') { this.control(ch.charCodeAt(0)); return; }
      if (ch >= '@' && ch <= '~') {
        this.state = this.ground;
        this.command(ch);
      } else if (this.params.length < 64) this.params += ch;
      else this.state = this.csiSkip;
    }

    csiSkip(ch) { if (ch >= '@' && ch <= '~') this.state = this.ground; }

    command(ch) {
      const mark = /^[<=>?]/.test(this.params) ? this.params[0] : '';
      const rest = mark ? this.params.slice(1) : this.params;
      if (/[^0-9;:]/.test(rest)) return; // with intermediates: shapes of the cursor and the like
      const p = rest.split(/[;:]/).slice(0, maxParams).map((v) => Math.min(+v || 0, 9999));
      const n = Math.max(1, p[0]);
      if (mark === '?') { if (ch === 'h' || ch === 'l') for (const mode of p) this.mode(mode, ch === 'h'); return; }
      if (mark) { if (mark === '>' && ch === 'c') this.reply('\x1b[>0;0;0c'); return; }
      const line = this.lines[this.y], empty = this.line()[0];
      const to = (x, y) => { this.touch(this.y); this.x = Math.max(0, Math.min(this.cols - 1, x)); this.y = Math.max(0, Math.min(this.rows - 1, y)); this.pending = false; this.touch(this.y); };
      switch (ch) {
        case 'A': to(this.x, this.y < this.top ? this.y - n : Math.max(this.top, this.y - n)); break;
        case 'B': case 'e': to(this.x, this.y > this.bottom ? this.y + n : Math.min(this.bottom, this.y + n)); break;
        case 'C': case 'a': to(this.x + n, this.y); break;
        case 'D': to(this.x - n, this.y); break;
        case 'E': to(0, this.y + n); break;
        case 'F': to(0, this.y - n); break;
        case 'G': case '`': to(n - 1, this.y); break;
        case 'd': to(this.x, n - 1); break;
        case 'H': case 'f': to(Math.max(1, p[1] || 1) - 1, n - 1); break;
        case 'J':
          if (p[0] === 0) { line.fill(empty, this.x); this.clear(this.y + 1, this.rows - 1); }
          if (p[0] === 1) { this.clear(0, this.y - 1); line.fill(empty, 0, this.x + 1); }
          if (p[0] >= 2) this.clear(0, this.rows - 1);
          if (p[0] === 3) { this.gone = []; back.replaceChildren(); }
          this.touch(this.y);
          break;
        case 'K': line.fill(empty, p[0] ? 0 : this.x, p[0] === 1 ? this.x + 1 : this.cols); this.touch(this.y); break;
        case 'X': line.fill(empty, this.x, Math.min(this.cols, this.x + n)); this.touch(this.y); break;
        case 'P': line.splice(this.x, n); while (line.length < this.cols) line.push(empty); this.touch(this.y); break;
        case '@': line.splice(this.x, 0, ...Array(Math.min(n, this.cols)).fill(empty)); line.length = this.cols; this.touch(this.y); break;
        case 'L': if (this.y >= this.top && this.y <= this.bottom) this.scroll(-n, this.y); break;
        case 'M': if (this.y >= this.top && this.y <= this.bottom) this.erase(n); break;
        case 'S': this.scroll(n); break;
        case 'T': this.scroll(-n); break;
        case 'm': this.style(p); break;
        case 'r': {
          const top = n - 1, bottom = Math.min(p[1] || this.rows, this.rows) - 1;
          if (top < bottom) { this.top = top; this.bottom = bottom; to(0, 0); }
          break;
        }
        case 's': this.saved = { x: this.x, y: this.y, st: this.st }; break;
        case 'u': this.restore(); break;
        case 'h': case 'l': if (p[0] === 4) this.insert = ch === 'h'; break;
        case 'n':
          if (p[0] === 6) this.reply(`\x1b[${this.y + 1};${this.x + 1}R`);
          if (p[0] === 5) this.reply('\x1b[0n');
          break;
        case 'c': this.reply('\x1b[?1;2c'); break;
        default:
      }
    }

    erase(n) { // lines at the cursor, without a place among those that have left
      const main = this.main;
      this.main = main || { lines: [] };
      this.scroll(n, this.y);
      this.main = main;
    }

    clear(from, to) {
      for (let i = from; i <= to; i++) this.lines[i] = this.line();
      this.touch(Math.max(0, from), Math.max(0, to));
    }

    mode(mode, on) {
      switch (mode) {
        case 1: this.appKeys = on; break;
        case 7: this.wrap = on; break;
        case 25: this.cursor = on; this.touch(this.y); break;
        case 2004: this.bracket = on; break;
        case 47: case 1047: case 1049:
          if (on && !this.main) {
            this.main = { lines: this.lines, x: this.x, y: this.y, st: this.st };
            this.lines = Array.from({ length: this.rows }, () => this.line());
            if (mode === 1049) this.x = this.y = 0;
          } else if (!on && this.main) {
            ({ lines: this.lines, x: this.x, y: this.y, st: this.st } = this.main);
            this.main = null;
            this.x = Math.min(this.x, this.cols - 1); this.y = Math.min(this.y, this.rows - 1);
          }
          this.top = 0; this.bottom = this.rows - 1; this.pending = false;
          this.touch(0, this.rows - 1);
          break;
        default:
      }
    }

    style(p) {
      let st = { ...this.st };
      const color = (i) => { // 38;5;n and 38;2;r;g;b
        if (p[i + 1] === 5) return [i + 2, Math.min(p[i + 2] || 0, 255)];
        if (p[i + 1] === 2) return [i + 4, '#' + [p[i + 2], p[i + 3], p[i + 4]].map((v) => Math.min(v || 0, 255).toString(16).padStart(2, '0')).join('')];
        return [p.length, -1];
      };
      for (let i = 0; i < p.length; i++) {
        const v = p[i];
        if (v === 0) st = { ...plain };
        else if (v === 1) st.bold = true;
        else if (v === 2) st.dim = true;
        else if (v === 3) st.italic = true;
        else if (v === 4) st.under = true;
        else if (v === 7) st.inverse = true;
        else if (v === 22) st.bold = st.dim = false;
        else if (v === 23) st.italic = false;
        else if (v === 24) st.under = false;
        else if (v === 27) st.inverse = false;
        else if (v >= 30 && v <= 37) st.fg = v - 30;
        else if (v === 38) [i, st.fg] = color(i);
        else if (v === 39) st.fg = -1;
        else if (v >= 40 && v <= 47) st.bg = v - 40;
        else if (v === 48) [i, st.bg] = color(i);
        else if (v === 49) st.bg = -1;
        else if (v >= 90 && v <= 97) st.fg = v - 82;
        else if (v >= 100 && v <= 107) st.bg = v - 92;
      }
      this.st = Object.keys(plain).every((k) => st[k] === plain[k]) ? plain : st;
    }
  }

  // A color of the palette of 256 beyond the sixteen that the theme has.
  const cube = (n) => {
    if (typeof n === 'string') return n;
    if (n >= 232) { const v = 8 + (n - 232) * 10; return `rgb(${v} ${v} ${v})`; }
    const part = (d) => { const v = Math.floor((n - 16) / d) % 6; return v ? 55 + v * 40 : 0; };
    return `rgb(${part(36)} ${part(6)} ${part(1)})`;
  };

  const span = (text, st, cursor) => {
    const el = document.createElement('span');
    el.textContent = text;
    let { fg, bg } = st;
    if (st.bold && fg >= 0 && fg < 8) fg += 8;
    const names = [];
    if (st.inverse !== cursor) { names.push('inv'); [fg, bg] = [bg, fg]; }
    if (typeof fg === 'number' && fg >= 0 && fg < 16) names.push('f' + fg); else if (fg !== -1) el.style.color = cube(fg);
    if (typeof bg === 'number' && bg >= 0 && bg < 16) names.push('b' + bg); else if (bg !== -1) el.style.backgroundColor = cube(bg);
    for (const k of ['bold', 'dim', 'italic', 'under']) if (st[k]) names.push(k);
    if (cursor) names.push('cursor');
    if (names.length) el.className = names.join(' ');
    return el;
  };

  const drawLine = (el, line, cursor) => {
    const parts = [];
    let last = line.length;
    while (last > 0 && line[last - 1] === blank && last - 1 !== cursor) last--;
    for (let i = 0; i < last;) {
      const { st } = line[i];
      let text = line[i].ch, j = i + 1;
      if (i !== cursor) while (j < last && j !== cursor && line[j].st === st) text += line[j++].ch;
      else if (line[i].wide) j++;
      parts.push(span(text, st, i === cursor));
      i = j;
    }
    el.replaceChildren(...parts);
  };

  let screen = null, socket = null, drawing = false;
  const draw = () => {
    drawing = false;
    if (!screen) return;
    const atEnd = view.scrollTop + view.clientHeight >= view.scrollHeight - 8;
    for (const line of screen.gone) {
      const el = document.createElement('div');
      drawLine(el, line, -1);
      back.append(el);
    }
    screen.gone = [];
    while (back.childElementCount > maxBack) back.firstElementChild.remove();
    while (rowsBox.childElementCount < screen.rows) { rowsBox.append(document.createElement('div')); screen.touch(rowsBox.childElementCount - 1); }
    while (rowsBox.childElementCount > screen.rows) rowsBox.lastElementChild.remove();
    for (const i of screen.dirty) {
      const el = rowsBox.children[i];
      if (el) drawLine(el, screen.lines[i], i === screen.y && screen.cursor && socket ? screen.x : -1);
    }
    screen.dirty.clear();
    if (atEnd) view.scrollTop = view.scrollHeight;
  };
  const redraw = () => { if (!drawing) { drawing = true; requestAnimationFrame(draw); } };

  // How many characters fit.
  const fits = () => {
    const probe = document.createElement('span');
    probe.textContent = 'm'.repeat(50);
    rowsBox.append(probe);
    const r = probe.getBoundingClientRect();
    const high = parseFloat(getComputedStyle(rowsBox).lineHeight) || r.height;
    probe.remove();
    const pad = parseFloat(getComputedStyle(view).paddingLeft) * 2;
    return [Math.max(20, Math.min(500, Math.floor((view.clientWidth - pad) / (r.width / 50)))), Math.max(5, Math.min(200, Math.floor((view.clientHeight - pad) / high)))];
  };

  const encoder = new TextEncoder();
  const send = (text) => {
    if (!socket || socket.readyState !== WebSocket.OPEN) return;
    const bytes = encoder.encode(text);
    for (let i = 0; i < bytes.length; i += 16384) socket.send(bytes.subarray(i, i + 16384));
  };

  const show = (text, on) => { state.textContent = text; start.hidden = on; view.classList.toggle('on', on); };

  const connect = () => {
    const [cols, rows] = fits();
    back.replaceChildren(); rowsBox.replaceChildren();
    screen = new Screen(cols, rows, send);
    const decoder = new TextDecoder();
    const to = new URL(box.dataset.terminal, location.href);
    to.protocol = to.protocol === 'https:' ? 'wss:' : 'ws:';
    to.search = new URLSearchParams({ columns: cols, rows });
    const mine = new WebSocket(to);
    socket = mine;
    mine.binaryType = 'arraybuffer';
    show('Connecting…', true);
    mine.onopen = () => { show('Connected', true); input.focus({ preventScroll: true }); redraw(); };
    mine.onmessage = (e) => {
      if (typeof e.data === 'string') return;
      screen.write(decoder.decode(e.data, { stream: true }));
      redraw();
    };
    mine.onclose = (e) => {
      if (socket === mine) socket = null;
      screen.touch(screen.y);
      redraw();
      show(e.reason || 'The connection was lost', false);
    };
  };
  start.hidden = false;
  start.addEventListener('click', connect);
  window.addEventListener('pagehide', () => { if (socket) socket.close(); });

  let fitting;
  new ResizeObserver(() => {
    clearTimeout(fitting);
    fitting = setTimeout(() => {
      if (!screen || !socket) return;
      const [cols, rows] = fits();
      if (cols === screen.cols && rows === screen.rows) return;
      screen.resize(cols, rows);
      redraw();
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ columns: cols, rows }));
    }, 150);
  }).observe(view);

  // Keys. Shift+Tab leaves the terminal, as Tab belongs to the shell.
  const arrows = { ArrowUp: 'A', ArrowDown: 'B', ArrowRight: 'C', ArrowLeft: 'D', Home: 'H', End: 'F' };
  const tilde = { Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F12: 24 };
  const simple = { Enter: '\r', Tab: '\t', Escape: '\x1b', Backspace: '\x7f', F1: '\x1bOP', F2: '\x1bOQ', F3: '\x1bOR', F4: '\x1bOS' };
  const mac = /Mac|iPhone|iPad/.test(navigator.platform);
  const sequence = (e) => {
    const mod = 1 + (e.shiftKey ? 1 : 0) + (e.altKey ? 2 : 0) + (e.ctrlKey ? 4 : 0);
    if (e.key in arrows) return mod > 1 ? `\x1b[1;${mod}${arrows[e.key]}` : `\x1b${screen.appKeys ? 'O' : '['}${arrows[e.key]}`;
    if (e.key in tilde) return mod > 1 ? `\x1b[${tilde[e.key]};${mod}~` : `\x1b[${tilde[e.key]}~`;
    if (e.key in simple) return (e.altKey ? '\x1b' : '') + simple[e.key];
    if (e.key.length !== 1) return '';
    if (e.ctrlKey && !e.altKey) {
      const c = e.key.toUpperCase().charCodeAt(0);
      if (e.key === ' ') return '\0';
      return c >= 0x40 && c <= 0x5f ? String.fromCharCode(c & 0x1f) : '';
    }
    if (e.altKey && !e.ctrlKey && !mac) return '\x1b' + e.key;
    return '';
  };
  input.addEventListener('keydown', (e) => {
    if (!socket || e.isComposing || e.metaKey || (e.key === 'Tab' && e.shiftKey)) return;
    if (e.ctrlKey && e.shiftKey) return; // the browser's copy and paste
    if (e.ctrlKey && e.key === 'c' && !getSelection().isCollapsed) return;
    const text = sequence(e);
    if (!text) return;
    e.preventDefault();
    send(text);
    view.scrollTop = view.scrollHeight;
  });
  input.addEventListener('input', (e) => {
    if (e.isComposing) return;
    send(input.value.replace(/\n/g, '\r'));
    input.value = '';
  });
  input.addEventListener('compositionend', () => { send(input.value); input.value = ''; });
  input.addEventListener('paste', (e) => {
    e.preventDefault();
    const text = e.clipboardData.getData('text/plain').replace(/\r?\n/g, '\r').replace(/\x1b/g, '');
    send(screen && screen.bracket ? `\x1b[200~${text}\x1b[201~` : text);
  });
  view.addEventListener('mouseup', () => { if (getSelection().isCollapsed) input.focus({ preventScroll: true }); });
})();
