// Folders that are dropped or chosen, sent as one archive with its progress. Without scripts the form takes an archive.
(() => {
  const size = (n) => n < 1e6 ? Math.round(n / 1e3) + ' kB' : n < 1e9 ? (n / 1e6).toFixed(1) + ' MB' : (n / 1e9).toFixed(2) + ' GB';
  const plural = (n) => n === 1 ? '1 file' : n + ' files';
  const most = 200000; // files; the server says so, too

  // What never leaves this machine. The server leaves out more.
  const never = (name, dir) => {
    const low = name.toLowerCase();
    if (dir) return ['.git', '.hg', '.svn', 'node_modules', '.slipway', '.vercel', '.netlify'].includes(low);
    return low === '.ds_store' || low === '.env' || low.startsWith('.env.') && !['.env.example', '.env.sample', '.env.template'].includes(low);
  };

  // One file's header as tar has it (POSIX.1-2001): a long or foreign name is in a record of its own before it.
  const encoder = new TextEncoder();
  const ustar = (name, bytes, type) => {
    const b = new Uint8Array(512);
    const put = (at, text) => b.set(encoder.encode(text), at);
    put(0, name);
    put(100, '0000644\0' + '0000000\0' + '0000000\0' + bytes.toString(8).padStart(11, '0') + '\0' + '00000000000\0' + '        ' + type);
    put(257, 'ustar\0' + '00');
    let sum = 0;
    for (const x of b) sum += x;
    put(148, sum.toString(8).padStart(6, '0') + '\0 ');
    return b;
  };
  const padding = (bytes) => new Uint8Array((512 - bytes % 512) % 512);
  const archive = (files) => {
    const parts = [];
    for (const { path, file } of files) {
      let name = path;
      if (encoder.encode(path).length > 100 || file.size >= 8 ** 11) {
        const record = (key, value) => {
          const rest = encoder.encode(' ' + key + '=' + value + '\n').length;
          let n = rest + String(rest).length;
          if (rest + String(n).length !== n) n = rest + String(n).length;
          return n + ' ' + key + '=' + value + '\n';
        };
        const text = encoder.encode(record('path', path));
        parts.push(ustar('long', text.length, 'x'), text, padding(text.length));
        name = 'long';
      }
      parts.push(ustar(name, file.size, '0'), file, padding(file.size));
    }
    parts.push(new Uint8Array(1024));
    return new File(parts, 'folder.tar');
  };

  // All files below what was dropped.
  const walk = async (entry, path, out, left) => {
    if (out.length > most) throw new Error('The folder has more than ' + most + ' files');
    if (never(entry.name, entry.isDirectory)) { left.push(path + entry.name); return; }
    if (entry.isFile) {
      out.push({ path: path + entry.name, file: await new Promise((ok, no) => entry.file(ok, no)) });
      return;
    }
    const reader = entry.createReader();
    for (;;) { // some browsers list 100 at a time
      const list = await new Promise((ok, no) => reader.readEntries(ok, no));
      if (!list.length) return;
      for (const e of list) await walk(e, path + entry.name + '/', out, left);
    }
  };
  const packed = (name) => /\.(zip|tar|tar\.gz|tgz|tar\.zst)$/i.test(name);

  for (const zone of document.querySelectorAll('[data-drop-zone]')) {
    const form = zone.closest('form'), input = zone.querySelector('input[type="file"]'), says = zone.querySelector('output');
    const box = zone.querySelector('[data-drop-progress]'), bar = box.querySelector('progress');
    const send = form.querySelector('button:not([type="button"])'), cancel = form.querySelector('[data-drop-cancel]');
    const isNew = form.hasAttribute('data-drop-new');
    let chosen = null, sending = null, made = null; // made: the new site's address
    zone.hidden = false;
    zone.querySelector('[data-drop-hint]').hidden = false;
    const say = (text) => { box.hidden = false; says.textContent = text; };
    const take = (files, left) => {
      input.required = false;
      if (files.length === 1 && packed(files[0].path)) chosen = files[0].file;
      else if (files.length) chosen = archive(files);
      bar.hidden = true;
      const bytes = files.reduce((n, f) => n + f.file.size, 0);
      say(files.length ? plural(files.length) + ', ' + size(bytes) + (left.length ? '. Left out: ' + left.slice(0, 3).join(', ') + (left.length > 3 ? ' and ' + (left.length - 3) + ' more' : '') : '') : 'There is nothing to upload');
    };
    zone.addEventListener('dragover', (e) => { e.preventDefault(); zone.classList.add('over'); });
    zone.addEventListener('dragleave', () => zone.classList.remove('over'));
    zone.addEventListener('drop', async (e) => {
      e.preventDefault();
      zone.classList.remove('over');
      const entries = [...e.dataTransfer.items].map((i) => i.webkitGetAsEntry && i.webkitGetAsEntry()).filter(Boolean);
      const files = [], left = [];
      try {
        say('Reading the folder…');
        for (const entry of entries) await walk(entry, '', files, left);
        take(files, left);
      } catch (why) { say(why.message || 'The folder can\'t be read'); }
    });
    const folder = document.createElement('input');
    folder.type = 'file';
    folder.webkitdirectory = true;
    folder.hidden = true;
    folder.dataset.test = 'drop-folder';
    zone.append(folder);
    zone.querySelector('[data-drop-folder]').addEventListener('click', () => folder.click());
    folder.addEventListener('change', () => {
      const files = [], left = [];
      for (const file of folder.files) {
        const path = file.webkitRelativePath || file.name, names = path.split('/');
        if (names.some((n, i) => never(n, i < names.length - 1))) left.push(path);
        else files.push({ path, file });
      }
      take(files, left);
    });
    input.addEventListener('change', () => { chosen = null; if (input.files.length) take([{ path: input.files[0].name, file: input.files[0] }], []); });

    const failed = (why) => {
      sending = null;
      send.disabled = false;
      bar.hidden = true;
      if (cancel) cancel.hidden = true;
      say(why);
    };
    const sentence = (text, status) => {
      let why = {};
      try { why = JSON.parse(text); } catch { /* not from us */ }
      return (why.error || 'status ' + status) + (why.details ? ': ' + why.details : '');
    };
    const upload = (to, fields) => {
      const data = new FormData();
      for (const [k, v] of fields) data.append(k, v);
      data.append('archive', chosen, chosen.name);
      const x = sending = new XMLHttpRequest();
      if (cancel) cancel.hidden = false;
      bar.hidden = false;
      bar.value = 0;
      say('Uploading…');
      x.upload.addEventListener('progress', (p) => {
        if (!p.lengthComputable) return;
        bar.value = p.loaded / p.total;
        say(p.loaded < p.total ? Math.floor(100 * bar.value) + ' % · ' + size(p.loaded) + ' of ' + size(p.total) : 'Uploaded. Starting the deployment…');
      });
      x.addEventListener('load', () => {
        if (x.status < 300) { sending = null; location.assign(x.responseURL); return; }
        failed('Upload failed: ' + sentence(x.responseText, x.status));
      });
      x.addEventListener('error', () => failed('Upload failed: the connection ended. Try again'));
      x.addEventListener('abort', () => failed('Upload canceled'));
      x.open('POST', to);
      x.setRequestHeader('Accept', 'application/json');
      x.send(data);
    };
    form.addEventListener('submit', async (e) => {
      if (!chosen && isNew) return; // a site without files, for now
      e.preventDefault();
      if (sending) return;
      if (!chosen) { say('Choose a folder or an archive'); return; }
      const fields = [...new FormData(form)].filter(([, v]) => typeof v === 'string');
      send.disabled = true;
      if (!isNew) { upload(form.action, fields); return; }
      say('Creating the site…');
      try {
        if (!made) {
          const answer = await fetch(form.action, { method: 'POST', headers: { Accept: 'application/json' }, body: new URLSearchParams(fields) });
          const at = new URL(answer.url).pathname.match(/^(.*\/sites\/[^/]+)\//);
          if (!answer.ok || !at) { failed('The site can\'t be created: ' + sentence(await answer.text(), answer.status)); return; }
          made = at[1];
        }
        upload(made + '/drop', []);
      } catch { failed('The site can\'t be created: the connection ended. Try again'); }
    });
    if (cancel) cancel.addEventListener('click', () => { if (sending) sending.abort(); });
    window.addEventListener('beforeunload', (e) => { if (sending) e.preventDefault(); });
  }
})();
